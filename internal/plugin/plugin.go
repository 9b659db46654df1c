// Package plugin is the kubectl plugin. It works from a laptop, with the rights of who
// calls it, and asks nothing of the operator but its kinds. For a report of stale Jobs not
// even those: it judges Jobs itself, in the way the operator does.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// The exit codes.
const (
	exitSuccess      = 0
	exitUnsuccessful = 1 // a sequence failed, or what --fail-on asks for was found
	exitError        = 2
	exitInterrupted  = 130
)

// errUnsuccessful is returned when a sequence has failed, or what --fail-on asks for was found.
// All there is to say about it has been said.
var errUnsuccessful = errors.New("found")

// environment is what a command works with.
type environment struct {
	in          io.Reader
	out, errOut io.Writer
	now         func() time.Time
	connect     func(clientcmd.ClientConfig) (*clusterConnection, error)

	// What the flags say that all commands have.
	clientConfig clientcmd.ClientConfig
	colorMode    string
}

// Run runs the plugin and returns its exit code.
func Run(ctx context.Context, args []string, out, errOut io.Writer) int {
	return runCommand(ctx, args, &environment{in: os.Stdin, out: out, errOut: errOut, now: time.Now, connect: newConnector(errOut)})
}

func runCommand(ctx context.Context, args []string, env *environment) int {
	root := newRootCommand(env) //nolint:contextcheck // cobra hands the context on
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
		Use:               "kubectl-yardmaster",
		Short:             "Look at batch work, and move it on",
		SilenceErrors:     true,
		SilenceUsage:      true,
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl yardmaster"},
		PersistentPreRunE: func(*cobra.Command, []string) error { return env.validateColor() },
	}
	root.SetOut(env.out)
	root.SetErr(env.errOut)
	env.clientConfig = addConnectionFlags(root.PersistentFlags())
	root.PersistentFlags().StringVar(&env.colorMode, "color", terminal.ColorAuto, "Colours: auto (on a terminal), always or never.")
	root.AddCommand(newReportCommand(env), newSequenceCommand(env), newQueueCommand(env), newPoolCommand(env), newSessionCommand(env))
	return root
}

func (e *environment) validateColor() error {
	return validateChoice("color", e.colorMode, terminal.ColorAuto, terminal.ColorAlways, terminal.ColorNever)
}

func (e *environment) outputStyle() terminal.Style { return terminal.NewStyle(e.colorMode, e.out) }

// validateChoice tells that a flag's value is none of those known.
func validateChoice(flag, value string, known ...string) error {
	if !slices.Contains(known, value) {
		return fmt.Errorf("--%s is %q, must be one of %v", flag, value, known)
	}
	return nil
}
