package cmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/oncectl/oncectl/runner"
	"github.com/oncectl/oncectl/sqlschema"
)

func newSchemaCmd(env *Env, store *storeOptions) *cobra.Command {
	group := &cobra.Command{
		Use:   "schema",
		Short: "Print, apply or look at the store's tables",
		Long: `The tables are made on first use. Where the role may not create them, hand the
output of 'oncectl schema print' to someone who may, or run 'oncectl schema
apply' as an owner.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	group.AddCommand(newSchemaPrintCmd(env, store), newSchemaApplyCmd(env, store), newSchemaStatusCmd(env, store))
	return group
}

func newSchemaPrintCmd(env *Env, store *storeOptions) *cobra.Command {
	var dialect string
	cmd := &cobra.Command{
		Use:     "print",
		Short:   "Print the SQL that makes the tables",
		Example: `  oncectl schema print --dialect postgres | psql -1 "$ADMIN_URL"`,
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			migrations, err := migrationsFor(env, store, dialect)
			if err != nil {
				return err
			}
			for _, m := range migrations {
				if _, err := fmt.Fprint(env.Out, m.SQL); err != nil {
					return fmt.Errorf("printing %s: %w", m.Name, err)
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dialect, "dialect", "", "`postgres` or sqlite (default: that of the store)")
	return cmd
}

// migrationsFor needs no connection: the SQL is the binary's.
func migrationsFor(env *Env, store *storeOptions, dialect string) ([]sqlschema.Migration, error) {
	if dialect == "" {
		choice, err := store.chooseStore(env)
		if err != nil {
			return nil, err
		}
		dialect = "sqlite"
		if choice.Postgres {
			dialect = "postgres"
		}
	}
	switch dialect {
	case "postgres":
		return sqlschema.Postgres(store.schemaName(env)), nil
	case "sqlite":
		return sqlschema.SQLite(), nil
	}
	return nil, usagef("--dialect is postgres or sqlite, not %q", dialect)
}

func newSchemaApplyCmd(env *Env, store *storeOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "apply",
		Short: "Make or change the tables up to this oncectl's version",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withSchema(cmd.Context(), env, store, func(ctx context.Context, k runner.SchemaKeeper) error {
				s, err := k.ApplySchema(ctx)
				if err != nil {
					return err
				}
				fmt.Fprintf(env.Out, "schema version %d\n", s.Version)
				return nil
			})
		},
	}
}

func newSchemaStatusCmd(env *Env, store *storeOptions) *cobra.Command {
	var format outputFormat
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the version of the tables",
		Long: `status shows the version of the store's tables and that of this oncectl.

Exit status: 0 they fit, 1 'oncectl schema apply' is due, 2 not possible.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withSchema(cmd.Context(), env, store, func(ctx context.Context, k runner.SchemaKeeper) error {
				s, err := k.SchemaStatus(ctx)
				if err != nil {
					return err
				}
				return printSchemaStatus(env, format, s)
			})
		},
	}
	format.addFlag(cmd.Flags())
	return cmd
}

func printSchemaStatus(env *Env, format outputFormat, s runner.SchemaStatus) error {
	if err := printRecord(env.Out, format, schemaRecord{s.Version, s.OldestBinary, s.Binary}, func() string {
		if s.Version == 0 {
			return fmt.Sprintf("no tables yet; this oncectl makes version %d on first use", s.Binary)
		}
		return fmt.Sprintf("schema version %d, for oncectl with version %d or later; this one has %d", s.Version, s.OldestBinary, s.Binary)
	}); err != nil {
		return err
	}
	if s.Version < s.Binary {
		return errNo
	}
	return nil
}

type schemaRecord struct {
	Version      int `json:"version"`
	OldestBinary int `json:"oldest_binary"`
	Binary       int `json:"binary"`
}

func withSchema(ctx context.Context, env *Env, o *storeOptions, f func(context.Context, runner.SchemaKeeper) error) error {
	st, err := o.openStore(ctx, env, "")
	if err != nil {
		return err
	}
	defer st.Close()
	return f(ctx, st)
}
