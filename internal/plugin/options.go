package plugin

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// newOptionsCommand is `kubectl yardmaster options`.
func newOptionsCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:               "options",
		Short:             "List the flags that apply to all commands",
		Args:              rejectArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, _ []string) error {
			fmt.Fprint(env.out, "These flags apply to all commands:\n\n"+command.Root().PersistentFlags().FlagUsages()+"\n")
			return nil
		},
	}
}

const globalFlagsHint = `Use "kubectl yardmaster options" for the flags that apply to all commands.`

// printUsage prints the usage of a command. Other than cobra, it replaces the twenty flags that select
// a cluster by a hint, as kubectl does. They are not marked as hidden, so that shells complete their
// names. A template would link the package text/template, with which the linker keeps more code.
func printUsage(command *cobra.Command) error {
	usage := command.UseLine()
	if command.HasAvailableSubCommands() {
		usage = command.CommandPath() + " COMMAND"
	}
	sections := []string{"Usage:\n  " + usage}
	if len(command.Aliases) > 0 {
		sections = append(sections, "Aliases:\n  "+command.NameAndAliases())
	}
	if command.HasExample() {
		sections = append(sections, "Examples:\n"+command.Example)
	}
	if command.HasAvailableSubCommands() {
		sections = append(sections, "Commands:\n"+strings.Join(describeSubcommands(command), "\n"))
	}
	if command.HasParent() && command.HasAvailableLocalFlags() {
		sections = append(sections, "Flags:\n"+strings.TrimRight(command.LocalFlags().FlagUsages(), " \n"))
	}
	if command.HasAvailableSubCommands() {
		sections = append(sections, fmt.Sprintf("Use %q for more information about a command.", command.CommandPath()+" COMMAND --help"))
	}
	fmt.Fprint(command.OutOrStdout(), strings.Join(append(sections, globalFlagsHint), "\n\n")+"\n")
	return nil
}

func describeSubcommands(command *cobra.Command) []string {
	var rows [][]string
	for _, child := range command.Commands() {
		if child.IsAvailableCommand() {
			rows = append(rows, []string{"  " + child.Name(), child.Short})
		}
	}
	return terminal.AlignColumns(rows)
}
