package plugin

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
)

// restartSessionCommand is `kubectl yardmaster session restart`.
type restartSessionCommand struct {
	*environment

	watch bool
}

func newRestartSessionCommand(env *environment) *cobra.Command {
	r := &restartSessionCommand{environment: env}
	command := agenticSessionKind.newObjectCommand(env, "restart", "Restart an AgenticSession that is stopped or has finished",
		"Restart an AgenticSession. A session that its user stopped continues its run. A session that has finished, or that Yardmaster "+
			"stopped, starts its next run. Both keep a persistent workspace.\n\n"+
			"If the session cannot be restarted, the command says why and writes nothing. With --watch, the exit code is that of `session watch`.",
		r.restartSession)
	command.Flags().BoolVarP(&r.watch, "watch", "w", false, "Watch the session until it finishes or is stopped.")
	return command
}

func (r *restartSessionCommand) restartSession(ctx context.Context, cluster *clusterConnection, s *v1alpha1.AgenticSession) error {
	qualifiedName := agenticSessionKind.qualifiedName(s)
	if err := checkRestartable(s); err != nil {
		return fmt.Errorf("%s: cannot restart: %w", qualifiedName, err)
	}
	before := s.DeepCopy()
	message := fmt.Sprintf("continues run %d", max(s.Status.Run, 1))
	s.Spec.OperatingMode = v1alpha1.ModeRunning
	if needsNewRun(before) {
		s.Spec.RunRequest = max(s.Spec.RunRequest, s.Status.Run+1)
		message = fmt.Sprintf("starts run %d", s.Spec.RunRequest)
	}
	if err := cluster.patchIfUnchanged(ctx, qualifiedName, before, s); err != nil {
		return err
	}
	fmt.Fprintln(r.out, qualifiedName, message)
	if !r.watch {
		return nil
	}
	return agenticSessionKind.watchObject(ctx, r.environment, cluster, s, true)
}

// needsNewRun reports whether the session cannot continue its current run: the run has
// finished, or something other than the user stopped it.
func needsNewRun(s *v1alpha1.AgenticSession) bool {
	switch s.Status.Phase {
	case v1alpha1.SessionCompleted, v1alpha1.SessionFailed:
		return true
	case v1alpha1.SessionStopped, v1alpha1.SessionStopping:
		return s.Spec.OperatingMode != v1alpha1.ModeStopped
	default:
		return false
	}
}

// checkRestartable returns an error that says why the session would not start again.
func checkRestartable(s *v1alpha1.AgenticSession) error {
	status := &s.Status
	timeout := s.Spec.Timeout
	switch {
	case !s.DeletionTimestamp.IsZero():
		return errors.New("it is being deleted")
	case s.Spec.OperatingMode != v1alpha1.ModeStopped && !needsNewRun(s):
		return fmt.Errorf("it is %s", render.SessionPhase(s))
	case s.Spec.OperatingMode != v1alpha1.ModeStopped && s.Spec.RunRequest > status.Run:
		return fmt.Errorf("run %d is already requested", s.Spec.RunRequest)
	case timeout != nil && *timeout > 0 && status.ActiveSeconds >= int64(*timeout):
		return fmt.Errorf("it has used %d of %d seconds; raise spec.timeout first", status.ActiveSeconds, *timeout)
	default:
		return nil
	}
}
