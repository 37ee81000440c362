package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// pages returns the manual page of root and of each command below it, by file
// name.
func pages(root *cobra.Command) map[string]string {
	out := map[string]string{fileName(root): page(root)}
	for _, c := range root.Commands() {
		if c.Hidden || c.Name() == "help" {
			continue
		}
		for name, text := range pages(c) {
			out[name] = text
		}
	}
	return out
}

func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }
func fileName(c *cobra.Command) string { return pageName(c) + ".1" }

// revised is the date that pages carry. It changes with their text, not with
// each build, so that builds can be compared.
const revised = "2026-12-03"

// page writes one page in the man(7) macros. A paragraph of the long text that
// begins with a word and a colon that names a section ("Exit status:") becomes
// that section; indented lines are kept as they are.
func page(c *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 %s oncectl \"oncectl manual\"\n", strings.ToUpper(pageName(c)), revised)
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", escape(pageName(c)), escape(lowerFirst(c.Short)))
	b.WriteString(".SH SYNOPSIS\n")
	for i, line := range synopsis(c) {
		if i > 0 {
			b.WriteString(".br\n")
		}
		fmt.Fprintf(&b, ".B %s\n", escape(line))
	}
	body, sections := split(c)
	b.WriteString(".SH DESCRIPTION\n" + body)
	writeOptions(&b, "OPTIONS", c.NonInheritedFlags())
	writeOptions(&b, "GLOBAL OPTIONS", c.InheritedFlags())
	b.WriteString(sections)
	if c.Example != "" {
		b.WriteString(".SH EXAMPLES\n" + verbatim(strings.Split(c.Example, "\n")))
	}
	writeSeeAlso(&b, c)
	return b.String()
}

// synopsis splits "a | b" into lines, each with the whole command path.
func synopsis(c *cobra.Command) []string {
	parent := ""
	if c.HasParent() {
		parent = c.Parent().CommandPath() + " "
	}
	use := c.Use
	if !c.HasParent() {
		use += " COMMAND"
	}
	var out []string
	for _, form := range strings.Split(use, " | ") {
		out = append(out, parent+form)
	}
	return out
}

// sectionWords are the paragraphs that become sections.
var sectionWords = []string{"Exit status", "Environment", "Files"}

// split divides the long text into the description and its own sections.
func split(c *cobra.Command) (body, sections string) {
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	last := ""
	for i, para := range strings.Split(text, "\n\n") {
		section := ""
		for _, w := range sectionWords {
			if rest, ok := strings.CutPrefix(para, w+":"); ok {
				section, para = w, upperFirst(strings.TrimLeft(rest, " \n"))
			}
		}
		switch {
		case section != "" && para == "":
			sections, last = sections+heading(section), section
		case section != "":
			sections += heading(section) + paragraph(para)
		case last != "" && strings.HasSuffix(sections, heading(last)): // a table follows its heading
			sections += verbatim(strings.Split(para, "\n"))
		case sections != "":
			sections += pp(para)
		case i == 0:
			body += paragraph(para)
		default:
			body += pp(para)
		}
	}
	return body, sections
}

func heading(section string) string { return ".SH " + strings.ToUpper(section) + "\n" }

// pp is a paragraph that follows another one.
func pp(para string) string {
	if strings.HasPrefix(para, "  ") {
		return paragraph(para)
	}
	return ".PP\n" + paragraph(para)
}

// paragraph writes running text, and indented lines as they are.
func paragraph(para string) string {
	var b strings.Builder
	var kept []string
	for _, line := range strings.Split(strings.TrimRight(para, "\n"), "\n") {
		if strings.HasPrefix(line, "  ") {
			kept = append(kept, line)
			continue
		}
		b.WriteString(literal(kept) + escape(line) + "\n")
		kept = nil
	}
	return b.String() + literal(kept)
}

func literal(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return ".PP\n" + verbatim(lines)
}

// verbatim is literal at the head of a section, which is a paragraph already.
func verbatim(lines []string) string {
	var b strings.Builder
	b.WriteString(".nf\n")
	for _, line := range lines {
		b.WriteString(escape(line) + "\n")
	}
	b.WriteString(".fi\n")
	return b.String()
}

func writeOptions(b *strings.Builder, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	b.WriteString(".SH " + title + "\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		name, usage := pflag.UnquoteUsage(f)
		b.WriteString(".TP\n.B ")
		if f.Shorthand != "" {
			b.WriteString(escape("-"+f.Shorthand) + ", ")
		}
		b.WriteString(escape("--" + f.Name))
		if name != "" {
			b.WriteString(" " + escape(strings.ToUpper(name)))
		}
		b.WriteString("\n" + escape(upperFirst(usage)) + "." + defaultOf(f) + "\n")
	})
}

// defaultOf tells a default that is worth telling.
func defaultOf(f *pflag.Flag) string {
	switch f.DefValue {
	case "", "false", "0", "0s", "[]":
		return ""
	}
	return " Default: " + escape(f.DefValue) + "."
}

func writeSeeAlso(b *strings.Builder, c *cobra.Command) {
	var also []string
	if c.HasParent() {
		also = append(also, pageName(c.Parent()))
	}
	for _, child := range c.Commands() {
		if !child.Hidden && child.Name() != "help" {
			also = append(also, pageName(child))
		}
	}
	if len(also) == 0 {
		return
	}
	b.WriteString(".SH SEE ALSO\n")
	for i, name := range also {
		end := ","
		if i == len(also)-1 {
			end = ""
		}
		fmt.Fprintf(b, ".BR %s (1)%s\n", escape(name), end)
	}
}

// escape makes s safe as a line of roff.
func escape(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", "...", "–", `\-`, "’", "'").Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}

func upperFirst(s string) string {
	if s == "" || strings.HasPrefix(s, "oncectl") {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }
