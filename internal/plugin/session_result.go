package plugin

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// sessionResultCommand is `kubectl yardmaster session result`.
type sessionResultCommand struct {
	*environment

	outputFormat string
}

func newSessionResultCommand(env *environment) *cobra.Command {
	r := &sessionResultCommand{environment: env}
	command := &cobra.Command{
		Use:   "result NAME",
		Short: "Print the result of an AgenticSession",
		Long: "Print the latest result of an AgenticSession: its summary, usage and cost.\n\n" +
			"A missing or unreadable result is an error.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: agenticSessionKind().completeSingleName(env),
		RunE:              func(command *cobra.Command, args []string) error { return r.printResult(command.Context(), args[0]) },
	}
	command.Flags().StringVarP(&r.outputFormat, "output", "o", outputText, "Output format: text, json or yaml.")
	return command
}

func (r *sessionResultCommand) printResult(ctx context.Context, name string) error {
	if err := validateChoice("output", r.outputFormat, outputText, outputJSON, outputYAML); err != nil {
		return err
	}
	_, s, err := agenticSessionKind().connectAndGet(ctx, r.environment, name)
	if err != nil {
		return err
	}
	if err := checkHasResult(s); err != nil {
		return fmt.Errorf("%s: %w", agenticSessionKind().qualifiedName(s), err)
	}
	if r.outputFormat != outputText {
		return printEncoded(r.out, r.outputFormat, s.Status.Result)
	}
	return terminal.WriteLines(r.out, render.SessionResult(r.outputStyle(), s))
}

// checkHasResult returns an error that says why there is no result.
func checkHasResult(s *v1alpha1.AgenticSession) error {
	valid := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionResultValid)
	switch {
	case valid != nil && valid.Status == metav1.ConditionFalse:
		return fmt.Errorf("the result cannot be read: %s", valid.Message)
	case s.Status.Result == nil:
		return fmt.Errorf("no result yet: the session is %s", render.SessionPhase(s))
	default:
		return nil
	}
}
