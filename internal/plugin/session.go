package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/plugin/logs"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

func newSessionCommand(env *environment) *cobra.Command {
	return newParentCommand("session", []string{"sessions", "agenticsession", "as"}, "Inspect, stop and restart AgenticSessions",
		newListCommand(env, agenticSessionKind, "List AgenticSessions with the time and cost they have used"),
		newWatchUntilFinishedCommand(env, agenticSessionKind, "Watch AgenticSessions",
			"Watch the attempts of an AgenticSession until it finishes or is stopped. Without a NAME, watch all AgenticSessions in the namespace "+
				"until interrupted.\n\n"+watchOutputHelp+
				"The exit code is 0 if all completed, 1 if one failed or is stopped, and 2 if watching failed.",
			"Exit when all sessions have finished or are stopped."),
		newCreateSessionCommand(env), newDescribeCommand(env, agenticSessionKind, agenticsession.LabelSessionUID), newSessionLogsCommand(env), newAttachCommand(env),
		newChangeCommand(env, specChange[*v1alpha1.AgenticSession]{
			kind: agenticSessionKind, verb: "stop", short: "Stop AgenticSessions",
			long: fmt.Sprintf("Stop AgenticSessions. The runner has %d seconds to exit. A persistent workspace is kept, "+
				"and `session restart` continues in it.", agenticsession.GracePeriodSeconds),
			changeSpec:     func(s *v1alpha1.AgenticSession) { s.Spec.Suspend = true },
			changedMessage: "stop requested", unchangedMessage: "stop is already requested",
			remark: func(s *v1alpha1.AgenticSession) string {
				if s.Status.Phase != v1alpha1.SessionCompleted && s.Status.Phase != v1alpha1.SessionFailed {
					return ""
				}
				return "; its run has finished, and the next run will not start"
			},
		}),
		newRestartSessionCommand(env), newSessionResultCommand(env))
}

func newSessionLogsCommand(env *environment) *cobra.Command {
	raw, full := false, false
	l := &logsCommand[*v1alpha1.AgenticSession]{
		environment: env, kind: agenticSessionKind, podLabel: agenticsession.LabelSessionUID,
		newStreamer: func(ctx context.Context, pods logs.PodClient, s *v1alpha1.AgenticSession, options logs.StreamOptions) (logStreamer[*v1alpha1.AgenticSession], error) {
			if !raw && options.Container == v1alpha1.RunnerContainer {
				options.Render = (&render.SessionEvents{Style: options.Style, Full: full}).Lines
			}
			return logs.NewSessionStreamer(ctx, pods, s, options)
		},
	}
	command := l.newCommand("Print the log of an AgenticSession's runner",
		"Print the log of an AgenticSession's runner. Each line starts with its run and attempt. Events of session-runner are "+
			"shown as text, with long results of tools and changes of files folded.\n\n"+
			"Stopping a session deletes its Pods and their logs.",
		"Keep printing, attempt after attempt, until the session finishes or is stopped.")
	command.Flags().StringVarP(&l.options.Container, "container", "c", v1alpha1.RunnerContainer, "Print the log of this container, such as a sidecar.")
	command.Flags().BoolVar(&full, "full", false, "Print whole results of tools, and the changes of files.")
	command.Flags().BoolVar(&raw, "raw", false, "Print each line unchanged, such as events in JSON.")
	return command
}

// isSessionInactive reports whether no further change is expected unless a user requests it: the session has finished or is stopped,
// and the operator has observed its spec.
func isSessionInactive(s *v1alpha1.AgenticSession) bool {
	inactive := []v1alpha1.SessionPhase{v1alpha1.SessionCompleted, v1alpha1.SessionFailed, v1alpha1.SessionStopped}
	return s.Status.ObservedGeneration >= s.Generation && slices.Contains(inactive, s.Status.Phase)
}

func newSessionResultCommand(env *environment) *cobra.Command {
	var format string
	command := agenticSessionKind.newObjectCommand(env, "result", "Print the result of an AgenticSession",
		"Print the latest result of an AgenticSession: its summary, usage and cost.\n\nA missing or unreadable result is an error.",
		func(_ context.Context, _ *clusterConnection, s *v1alpha1.AgenticSession) error {
			reporting := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionRunnerReporting)
			switch {
			case reporting != nil && reporting.Reason == v1alpha1.ReasonResultMalformed:
				return fmt.Errorf("%s: the result cannot be read: %s", agenticSessionKind.qualifiedName(s), reporting.Message)
			case s.Status.Result == nil:
				return fmt.Errorf("%s: no result yet: the session is %s", agenticSessionKind.qualifiedName(s), render.SessionPhase(s))
			case format != outputText:
				return printEncoded(env.out, format, s.Status.Result)
			default:
				return terminal.WriteLines(env.out, render.SessionResult(env.outputStyle(), s))
			}
		})
	addOutputFlag(command, &format, outputText, outputJSON, outputYAML)
	return command
}

func newRestartSessionCommand(env *environment) *cobra.Command {
	watch := false
	command := agenticSessionKind.newObjectCommand(env, "restart", "Restart an AgenticSession that is stopped or has finished",
		"Restart an AgenticSession. A session that its user stopped continues its run. A session that has finished, or that Yardmaster "+
			"stopped, starts its next run. Both keep a persistent workspace.\n\n"+
			"If the session cannot be restarted, the command says why and writes nothing. With --watch, the exit code is that of `session watch`.",
		func(ctx context.Context, cluster *clusterConnection, s *v1alpha1.AgenticSession) error {
			qualifiedName := agenticSessionKind.qualifiedName(s)
			if err := checkRestartable(s); err != nil {
				return fmt.Errorf("%s: cannot restart: %w", qualifiedName, err)
			}
			before := s.DeepCopy()
			message := fmt.Sprintf("continues run %d", max(s.Status.Run, 1))
			s.Spec.Suspend = false
			if needsNewRun(before) {
				if !agenticsession.IsRerunRequested(s, &s.Status) {
					s.Spec.Rerun = &v1alpha1.Rerun{ID: newRequestID(env.now())}
				}
				message = fmt.Sprintf("starts run %d", s.Status.Run+1)
			}
			if err := cluster.patchIfUnchanged(ctx, qualifiedName, before, s); err != nil {
				return err
			}
			fmt.Fprintln(env.out, qualifiedName, message)
			if !watch {
				return nil
			}
			return agenticSessionKind.watchObject(ctx, env, cluster, s, true)
		})
	command.Flags().BoolVarP(&watch, "watch", "w", false, "Watch the session until it finishes or is stopped.")
	return command
}

// needsNewRun reports whether the session cannot continue its current run: the run has finished, or was not stopped by the user.
func needsNewRun(s *v1alpha1.AgenticSession) bool {
	switch s.Status.Phase {
	case v1alpha1.SessionCompleted, v1alpha1.SessionFailed:
		return true
	case v1alpha1.SessionStopped, v1alpha1.SessionStopping:
		return !s.Spec.Suspend
	default:
		return false
	}
}

// checkRestartable returns an error if the session would not start again.
func checkRestartable(s *v1alpha1.AgenticSession) error {
	status := &s.Status
	timeout := agenticsession.TimeoutOf(&s.Spec)
	switch {
	case !s.DeletionTimestamp.IsZero():
		return errors.New("it is being deleted")
	case !s.Spec.Suspend && !needsNewRun(s):
		return fmt.Errorf("it is %s", render.SessionPhase(s))
	case !s.Spec.Suspend && agenticsession.IsRerunRequested(s, status):
		return fmt.Errorf("run %d is already requested", status.Run+1)
	case timeout > 0 && status.ActiveDuration.Duration.Duration >= timeout:
		return fmt.Errorf("it has used %s of %s; raise spec.limits.timeout first",
			render.FormatRounded(status.ActiveDuration.Duration.Duration), render.FormatRounded(timeout))
	default:
		return nil
	}
}
