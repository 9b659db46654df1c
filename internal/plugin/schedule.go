package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/schedule"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

func newScheduleCommand(env *environment) *cobra.Command {
	return newParentCommand("schedule", []string{"schedules", "sched"}, "Inspect, trigger and suspend Schedules",
		newListCommand(env, scheduleKind, "List Schedules with their last and next times"),
		newNextCommand(env),
		newRunsCommand(env),
		newTriggerCommand(env),
		newBackfillCommand(env),
		newChangeCommand(env, specChange[*v1alpha1.Schedule]{
			kind: scheduleKind, verb: "cancel", short: "Withdraw the request of a trigger or backfill",
			long:           "Withdraw the request of a trigger or backfill: its times that have not started count as missed. Runs that exist continue.",
			changeSpec:     func(s *v1alpha1.Schedule) { s.Spec.Rerun = nil },
			changedMessage: "has no request any more", unchangedMessage: "has no request",
		}),
		newChangeCommand(env, specChange[*v1alpha1.Schedule]{
			kind: scheduleKind, verb: "suspend", short: "Suspend Schedules",
			long:           "Suspend Schedules: no run starts but a triggered one. Active runs continue, a backfill waits, and times that come meanwhile are missed.",
			changeSpec:     func(s *v1alpha1.Schedule) { s.Spec.Suspend = true },
			changedMessage: "suspended", unchangedMessage: "is already suspended",
		}),
		newChangeCommand(env, specChange[*v1alpha1.Schedule]{
			kind: scheduleKind, verb: "resume", short: "Resume Schedules",
			long:           "Resume suspended Schedules at their next time. Times that came meanwhile do not run.",
			changeSpec:     func(s *v1alpha1.Schedule) { s.Spec.Suspend = false },
			changedMessage: "resumed", unchangedMessage: "is not suspended",
			remark: func(s *v1alpha1.Schedule) string {
				if decision.FindReason(s.Status.Conditions, v1alpha1.ConditionReady, v1alpha1.ReasonTooManyFailures) == nil {
					return ""
				}
				return fmt.Sprintf(", but stopped after %d failures: it continues when a run succeeds (`schedule trigger %s`), or when the operator has "+
					"observed a suspension (`schedule suspend %s`)", s.Status.Failures, s.Name, s.Name)
			},
		}))
}

func newTriggerCommand(env *environment) *cobra.Command {
	at, id := "", ""
	command := scheduleKind.newObjectCommand(env, "trigger", "Request a run of a Schedule",
		"Request a run of a Schedule now, in addition to those of its timetable. The operator starts it by the rules of the Schedule: with "+
			"Forbid it waits for the active run, with Replace it replaces it, and startingDeadlineSeconds limits how long it waits. "+
			"A session acts for the owner of the Schedule's template, not for you.",
		func(ctx context.Context, cluster *clusterConnection, s *v1alpha1.Schedule) error {
			request := &v1alpha1.ScheduleRerun{Rerun: v1alpha1.Rerun{ID: id}}
			if at != "" {
				due, err := parseScheduledTime(s, "at", at)
				if err != nil {
					return err
				}
				request.From = &due
			}
			if err := requestRuns(ctx, env, cluster, s, request); err != nil {
				return err
			}
			waits := ""
			if request.From != nil && request.From.After(env.now()) {
				waits = ", which waits until " + request.From.UTC().Format(time.RFC3339)
			}
			fmt.Fprintf(env.out, "%s triggered: request %s%s\n", scheduleKind.qualifiedName(s), s.Spec.Rerun.ID, waits)
			return nil
		})
	command.Flags().StringVar(&at, "at", "", "Scheduled time of the run, its SCHEDULED_TIME: "+timeFormats+". The default is now. A time that has not come waits until then.")
	addRequestID(command, &id)
	return command
}

func newBackfillCommand(env *environment) *cobra.Command {
	from, to, id, dryRun := "", "", "", false
	command := scheduleKind.newObjectCommand(env, "backfill", "Request runs of times that are past",
		fmt.Sprintf("Request a run for each time of the timetable from --from to --to, at most %d, with this time as its SCHEDULED_TIME. "+
			"They start one after another; with the concurrencyPolicy Allow, up to 10 are active at the same time. Times that are due go first. "+
			"`schedule cancel` stops it, and `schedule suspend` makes it wait.", schedule.MaxBackfill),
		func(ctx context.Context, cluster *clusterConnection, s *v1alpha1.Schedule) error {
			request := &v1alpha1.ScheduleRerun{Rerun: v1alpha1.Rerun{ID: id}}
			first, err := parseScheduledTime(s, "from", from)
			if err != nil {
				return err
			}
			last, err := parseScheduledTime(s, "to", to)
			if err != nil {
				return err
			}
			request.From, request.To = &first, &last
			timetable, err := schedule.NewTimetable(s.Spec.Cron)
			if err != nil {
				return fmt.Errorf("%s: spec.%w", scheduleKind.qualifiedName(s), err)
			}
			requested := schedule.RequestedTimes(timetable, request)
			switch count := len(requested); {
			case last.Before(&first):
				return errors.New("--to is before --from")
			case last.After(env.now()):
				return errors.New("--to has not come yet: times that come run anyway")
			case count == 0:
				return errors.New("no time of the timetable is from --from to --to")
			case count == schedule.MaxBackfill && !timetable.Next(requested[count-1]).After(last.Time):
				return fmt.Errorf("more than %d times are from --from to --to: request fewer", schedule.MaxBackfill)
			case dryRun:
				return terminal.WriteLines(env.out, render.RequestedTimes(env.outputStyle(), timetable, requested))
			}
			if err := requestRuns(ctx, env, cluster, s, request); err != nil {
				return err
			}
			fmt.Fprintf(env.out, "%s runs %d times again: request %s\n", scheduleKind.qualifiedName(s), len(requested), s.Spec.Rerun.ID)
			return nil
		})
	f := command.Flags()
	f.StringVar(&from, "from", "", "First time: "+timeFormats+".")
	f.StringVar(&to, "to", "", "Last time, in the same form.")
	f.BoolVar(&dryRun, "dry-run", false, "Only show the times.")
	addRequestID(command, &id)
	panicOnError(command.MarkFlagRequired("from"))
	panicOnError(command.MarkFlagRequired("to"))
	return command
}

func addRequestID(command *cobra.Command, id *string) {
	command.Flags().StringVar(id, "id", "", "ID of the request, at most 63 characters. The default is generated from the time and a random suffix.")
}

// timeFormats are the formats of scheduled times, which have the precision of the API.
const timeFormats = "as 2026-03-02T01:30:00Z, or 2026-03-02T02:30 or 2026-03-02 in the time zone of the Schedule"

func parseScheduledTime(s *v1alpha1.Schedule, flag, text string) (metav1.Time, error) {
	location, err := schedule.LoadTimeZone(s.Spec.TimeZone)
	if err != nil {
		return metav1.Time{}, fmt.Errorf("%s: spec.timeZone %w", scheduleKind.qualifiedName(s), err)
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", time.DateOnly} {
		if at, err := time.ParseInLocation(layout, text, location); err == nil {
			return metav1.NewTime(at.UTC().Truncate(time.Second)), nil
		}
	}
	return metav1.Time{}, fmt.Errorf("invalid --%s %q: must be a time %s", flag, text, timeFormats)
}

// requestRuns writes a request into the spec, unless another request has times that have not started.
func requestRuns(ctx context.Context, env *environment, cluster *clusterConnection, s *v1alpha1.Schedule, request *v1alpha1.ScheduleRerun) error {
	request.ID = cmp.Or(request.ID, newRequestID(env.now()))
	before, qualifiedName, accepted := s.DeepCopy(), scheduleKind.qualifiedName(s), s.Status.Rerun
	switch stored := s.Spec.Rerun; {
	case !s.DeletionTimestamp.IsZero():
		return fmt.Errorf("%s is being deleted", qualifiedName)
	case accepted != nil && accepted.ID == request.ID:
		return fmt.Errorf("%s: the last request had the id %q; choose another with --id", qualifiedName, request.ID)
	case stored != nil && (accepted == nil || accepted.ID != stored.ID):
		return fmt.Errorf("%s: request %s has not been accepted yet; wait, or withdraw it with `schedule cancel %s`", qualifiedName, stored.ID, s.Name)
	case stored != nil && accepted.Left > 0:
		return fmt.Errorf("%s: %d times of request %s have not started; wait, or withdraw it with `schedule cancel %s`", qualifiedName, accepted.Left, stored.ID, s.Name)
	}
	s.Spec.Rerun = request
	return cluster.patchIfUnchanged(ctx, qualifiedName, before, s)
}

func newRunsCommand(env *environment) *cobra.Command {
	return scheduleKind.newObjectCommand(env, "runs", "List the runs of a Schedule",
		"List the runs of a Schedule, newest first, with their results and how long they took. The history limits define how many are kept.",
		func(ctx context.Context, cluster *clusterConnection, s *v1alpha1.Schedule) error {
			if s.Spec.Message != nil {
				return fmt.Errorf("%s sends messages; see `queue jobs %s`", scheduleKind.qualifiedName(s), s.Spec.Message.QueueRef.Name)
			}
			ofSchedule := []client.ListOption{client.InNamespace(s.Namespace), client.MatchingLabels{v1alpha1.LabelSchedule: s.Name}}
			var runs []render.ScheduleRun
			if s.Spec.AgenticSession != nil {
				var sessions v1alpha1.AgenticSessionList
				if err := cluster.List(ctx, &sessions, ofSchedule...); err != nil {
					return err
				}
				for i := range sessions.Items {
					runs = append(runs, render.RunOfSession(&sessions.Items[i]))
				}
			} else {
				var sequences v1alpha1.SequentialJobList
				if err := cluster.List(ctx, &sequences, ofSchedule...); err != nil {
					return err
				}
				for i := range sequences.Items {
					runs = append(runs, render.RunOfSequence(&sequences.Items[i]))
				}
			}
			return terminal.WriteLines(env.out, render.RunTable(env.outputStyle(), s, runs, env.now()))
		})
}

// maxNextTimes bounds the output of schedule next.
const maxNextTimes = 1000

func newNextCommand(env *environment) *cobra.Command {
	count := 5
	command := scheduleKind.newObjectCommand(env, "next", "Show the next times of a Schedule",
		"Show the next times of a Schedule: in its time zone, with the jitter of each run, whether or not it is suspended, and whatever spec.when says.",
		func(_ context.Context, _ *clusterConnection, s *v1alpha1.Schedule) error {
			if count < 1 || count > maxNextTimes {
				return fmt.Errorf("--count is %d, must be 1 to %d", count, maxNextTimes)
			}
			lines, err := render.NextTimes(env.outputStyle(), s, count, env.now())
			if err != nil {
				return fmt.Errorf("%s: spec.%w", scheduleKind.qualifiedName(s), err)
			}
			return terminal.WriteLines(env.out, lines)
		})
	command.Flags().IntVar(&count, "count", count, "Number of times.")
	return command
}
