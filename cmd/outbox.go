package cmd

import (
	"github.com/spf13/cobra"
)

func newOutboxCmd(env *Env, store *storeOptions) *cobra.Command {
	group := &cobra.Command{
		Use:   "outbox",
		Short: "Publish what applications committed",
		Long: `The outbox is a table. An application inserts a message in the transaction in
which it changes its own data, so that both are there or neither is:

  begin;
  update orders set state = 'paid' where id = 4711;
  insert into oncectl.outbox (topic, payload) values ('order.paid', '{"id": 4711}');
  commit;

'oncectl outbox publish' sends what was committed, from any number of hosts.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	group.AddCommand(newOutboxAddCmd(env, store), newOutboxPublishCmd(env, store))
	return group
}
