package plugin

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
)

// stopSessionCommand is `kubectl yardmaster session stop`.
type stopSessionCommand struct{ *environment }

func newStopSessionCommand(env *environment) *cobra.Command {
	s := &stopSessionCommand{env}
	return &cobra.Command{
		Use:   "stop NAME...",
		Short: "Stop AgenticSessions",
		Long: "Stop AgenticSessions. The runner has 25 seconds to end; a persistent workspace is kept, and `session restart` goes on in it.\n\n" +
			"The exit code is 2 if any of them could not be changed; the others are all the same.",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: agenticSessionKind().completeNames(env),
		RunE:              func(command *cobra.Command, names []string) error { return s.run(command.Context(), names) },
	}
}

func (c *stopSessionCommand) run(ctx context.Context, names []string) error {
	cluster, err := c.connect(c.clientConfig)
	if err != nil {
		return err
	}
	var failures []error
	for _, name := range names {
		if err := c.one(ctx, cluster, name); err != nil {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

func (c *stopSessionCommand) one(ctx context.Context, cluster *clusterConnection, name string) error {
	s := &v1alpha1.AgenticSession{}
	if err := cluster.getByName(ctx, name, s); err != nil {
		return err
	}
	said := "was told to stop already"
	if s.Spec.OperatingMode != v1alpha1.ModeStopped {
		said = "is told to stop"
		before := s.DeepCopy()
		s.Spec.OperatingMode = v1alpha1.ModeStopped
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := cluster.Patch(ctx, s, patch); err != nil {
			return explainConflict(agenticSessionKind().qualifiedName(s), err)
		}
	}
	switch s.Status.Phase {
	case v1alpha1.SessionCompleted, v1alpha1.SessionFailed:
		said += "; it has ended, and its next run will not begin"
	default:
	}
	fmt.Fprintln(c.out, agenticSessionKind().qualifiedName(s), said)
	return nil
}

// restartSessionCommand is `kubectl yardmaster session restart`.
type restartSessionCommand struct {
	*environment

	watch bool
}

func newRestartSessionCommand(env *environment) *cobra.Command {
	r := &restartSessionCommand{environment: env}
	command := &cobra.Command{
		Use:   "restart NAME",
		Short: "Start an AgenticSession again that is stopped, or has ended",
		Long: "Start an AgenticSession again. One that its user stopped goes on at its run; " +
			"one that has ended, or was stopped by itself, begins its next. Either has the workspace that it had, if that is persistent.\n\n" +
			"What cannot be is refused before anything is written. With --watch the exit code is that of `session watch`.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: agenticSessionKind().completeSingleName(env),
		RunE:              func(command *cobra.Command, args []string) error { return r.restartSession(command.Context(), args[0]) },
	}
	command.Flags().BoolVarP(&r.watch, "watch", "w", false, "Watch it until it has ended or is stopped.")
	return command
}

func (r *restartSessionCommand) restartSession(ctx context.Context, name string) error {
	cluster, err := r.connect(r.clientConfig)
	if err != nil {
		return err
	}
	s := &v1alpha1.AgenticSession{}
	if err := cluster.getByName(ctx, name, s); err != nil {
		return err
	}
	called := agenticSessionKind().qualifiedName(s)
	if err := checkRestartable(s); err != nil {
		return fmt.Errorf("%s: cannot restart: %w", called, err)
	}
	before := s.DeepCopy()
	said := fmt.Sprintf("goes on at run %d", max(s.Status.Run, 1))
	s.Spec.OperatingMode = v1alpha1.ModeRunning
	if needsNewRun(before) {
		if s.Spec.RunRequest <= s.Status.Run {
			s.Spec.RunRequest++
		}
		said = fmt.Sprintf("begins run %d", s.Spec.RunRequest)
	}
	// What was looked at must be what is started again.
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := cluster.Patch(ctx, s, patch); err != nil {
		return explainConflict(called, err)
	}
	fmt.Fprintln(r.out, called, said)
	if !r.watch {
		return nil
	}
	return watchableSessions().watchObject(ctx, r.environment, cluster, s, true)
}

// needsNewRun reports whether it takes another run to have the session at work: the present one
// has ended, or was stopped by something else than its user.
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

// checkRestartable tells why the session would not start again.
func checkRestartable(s *v1alpha1.AgenticSession) error {
	status := &s.Status
	timeout := s.Spec.Timeout
	switch {
	case !s.DeletionTimestamp.IsZero():
		return errors.New("it is being deleted")
	case s.Spec.OperatingMode != v1alpha1.ModeStopped && !needsNewRun(s):
		return fmt.Errorf("it is %s", render.SessionPhase(s))
	case s.Spec.OperatingMode != v1alpha1.ModeStopped && s.Spec.RunRequest > status.Run:
		return fmt.Errorf("run %d is about to begin", s.Spec.RunRequest)
	case timeout != nil && *timeout > 0 && status.ActiveSeconds >= int64(*timeout):
		return fmt.Errorf("all of its time is used up, %d of %d seconds; raise spec.timeout first", status.ActiveSeconds, *timeout)
	default:
		return nil
	}
}
