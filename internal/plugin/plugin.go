// Package plugin is the kubectl plugin. It runs with the permissions of its user. It needs only the operator's kinds; to report stale
// Jobs it does not need even these, because it classifies the Jobs itself with the operator's rules.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
	"github.com/yardmaster/yardmaster/internal/version"
)

// The exit codes.
const (
	exitSuccess      = 0
	exitUnsuccessful = 1 // watched work failed, or a report has findings of --fail-on
	exitError        = 2
	exitInterrupted  = 130
)

// errUnsuccessful makes the exit code 1. The output already shows the reason, so no message is printed for it.
var errUnsuccessful = errors.New("unsuccessful")

// environment is shared by all commands.
type environment struct {
	in          io.Reader
	out, errOut io.Writer
	now         func() time.Time
	connect     func(clientcmd.ClientConfig) (*clusterConnection, error)

	// The values of the global flags.
	clientConfig clientcmd.ClientConfig
	colorMode    string
}

// Run runs the plugin and returns its exit code.
func Run(ctx context.Context, args []string, out, errOut io.Writer) int {
	return runCommand(ctx, args, &environment{in: os.Stdin, out: out, errOut: errOut, now: time.Now, connect: newConnector(errOut)})
}

func runCommand(ctx context.Context, args []string, env *environment) int {
	root := newRootCommand(env) //nolint:contextcheck // cobra passes the context on
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitSuccess
	case errors.Is(err, errUnsuccessful):
		return exitUnsuccessful
	case ctx.Err() != nil:
		return exitInterrupted
	}
	for _, line := range describeError(err) {
		fmt.Fprintln(env.errOut, "error:", line)
	}
	return exitError
}

func newRootCommand(env *environment) *cobra.Command {
	root := &cobra.Command{
		Use:           "kubectl-yardmaster",
		Short:         "Inspect and control Yardmaster workloads",
		Args:          rejectArguments,
		RunE:          func(command *cobra.Command, _ []string) error { return command.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl yardmaster"},
		PersistentPreRunE: func(command *cobra.Command, _ []string) (err error) {
			command.Flags().VisitAll(func(flag *pflag.Flag) {
				if choices := flag.Annotations[annotationChoices]; err == nil && choices != nil {
					err = validateChoice(flag.Name, flag.Value.String(), choices...)
				}
			})
			return err
		},
	}
	root.SetOut(env.out)
	root.SetErr(env.errOut)
	env.clientConfig = addConnectionFlags(root.PersistentFlags())
	addChoiceFlag(root, root.PersistentFlags(), &env.colorMode, "color", "", "When to use colors: auto (on a terminal), always or never.",
		terminal.ColorAuto, terminal.ColorAlways, terminal.ColorNever)
	root.AddCommand(newSequenceCommand(env), newQueueCommand(env), newPoolCommand(env), newSessionCommand(env), newScheduleCommand(env),
		newReportCommand(env), newDoctorCommand(env), newUICommand(env), newWebhookCACommand(env), newOptionsCommand(env), newVersionCommand(env))
	root.SetUsageFunc(printUsage)
	completeGlobalFlags(env, root)
	addExamples(root)
	completeRemainingFlags(root)
	return root
}

// newParentCommand returns a command that only groups others and prints their help.
func newParentCommand(name string, aliases []string, short string, children ...*cobra.Command) *cobra.Command {
	command := &cobra.Command{
		Use:     name,
		Aliases: aliases,
		Short:   short,
		Args:    rejectArguments,
		RunE:    func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(children...)
	return command
}

func (e *environment) outputStyle() terminal.Style { return terminal.NewStyle(e.colorMode, e.out) }

func newVersionCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:               "version",
		Short:             "Print the version of the plugin",
		Args:              rejectArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(env.out, version.Describe("kubectl-yardmaster"))
			return err
		},
	}
}
