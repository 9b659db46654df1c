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
	exitWell        = 0
	exitFound       = 1 // a sequence failed, or what --fail-on asks for was found
	exitError       = 2
	exitInterrupted = 130
)

// errFound is returned when a sequence has failed, or what --fail-on asks for was found.
// All there is to say about it has been said.
var errFound = errors.New("found")

// environment is what a command works with.
type environment struct {
	in          io.Reader
	out, errOut io.Writer
	now         func() time.Time
	connect     func(clientcmd.ClientConfig) (*connection, error)

	// What the flags say that all commands have.
	config clientcmd.ClientConfig
	colour string
}

// Run runs the plugin and returns its exit code.
func Run(ctx context.Context, args []string, out, errOut io.Writer) int {
	return run(ctx, args, &environment{in: os.Stdin, out: out, errOut: errOut, now: time.Now, connect: connectTo(errOut)})
}

func run(ctx context.Context, args []string, env *environment) int {
	root := newRoot(env) //nolint:contextcheck // cobra hands the context on
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitWell
	case errors.Is(err, errFound):
		return exitFound
	case ctx.Err() != nil:
		return exitInterrupted
	}
	for _, line := range explain(err) {
		fmt.Fprintln(env.errOut, "error:", line)
	}
	return exitError
}

func newRoot(env *environment) *cobra.Command {
	root := &cobra.Command{
		Use:               "kubectl-yardmaster",
		Short:             "Look at batch work, and move it on",
		SilenceErrors:     true,
		SilenceUsage:      true,
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl yardmaster"},
		PersistentPreRunE: func(*cobra.Command, []string) error { return env.checkColour() },
	}
	root.SetOut(env.out)
	root.SetErr(env.errOut)
	env.config = connectionFlags(root.PersistentFlags())
	root.PersistentFlags().StringVar(&env.colour, "color", terminal.ColourAuto, "Colours: auto (on a terminal), always or never.")
	root.AddCommand(newReport(env), newSeq(env), newQueue(env), newPool(env), newSession(env))
	return root
}

func (e *environment) checkColour() error {
	return oneOf("color", e.colour, terminal.ColourAuto, terminal.ColourAlways, terminal.ColourNever)
}

func (e *environment) style() terminal.Style { return terminal.StyleFor(e.colour, e.out) }

// oneOf tells that a flag's value is none of those known.
func oneOf(flag, value string, known ...string) error {
	if !slices.Contains(known, value) {
		return fmt.Errorf("--%s is %q, must be one of %v", flag, value, known)
	}
	return nil
}
