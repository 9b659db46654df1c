package plugin

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/schedule"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

func newScheduleCommand(env *environment) *cobra.Command {
	return newParentCommand("schedule", []string{"schedules", "sched"}, "Inspect, trigger and suspend Schedules",
		newListCommand(env, scheduleKind, "List Schedules with their last and next times"),
		newNextCommand(env),
		scheduleKind.newObjectCommand(env, "trigger", "Start a run of a Schedule now",
			"Start a run of a Schedule now, from its template and with your permissions. The run counts as active for the "+
				"concurrencyPolicy, and is part of the history. It has no SCHEDULED_TIME.",
			func(ctx context.Context, cluster *clusterConnection, s *v1alpha1.Schedule) error {
				return triggerRun(ctx, env, cluster, s)
			}),
		newChangeCommand(env, specChange[*v1alpha1.Schedule]{
			kind: scheduleKind, verb: "suspend", short: "Suspend Schedules",
			long:           "Suspend Schedules: no further run starts. Active runs continue, and times that come meanwhile are missed.",
			changeSpec:     func(s *v1alpha1.Schedule) { s.Spec.Suspend = true },
			changedMessage: "suspended", unchangedMessage: "is already suspended",
		}),
		newChangeCommand(env, specChange[*v1alpha1.Schedule]{
			kind: scheduleKind, verb: "resume", short: "Resume Schedules",
			long:           "Resume suspended Schedules at their next time. Times that came meanwhile do not run.",
			changeSpec:     func(s *v1alpha1.Schedule) { s.Spec.Suspend = false },
			changedMessage: "resumed", unchangedMessage: "is not suspended",
		}))
}

// triggerRun creates a run of the Schedule, or sends its job, without a scheduled time.
func triggerRun(ctx context.Context, env *environment, cluster *clusterConnection, s *v1alpha1.Schedule) error {
	const suffixLength = 5
	name := s.Name + "-now-" + rand.String(suffixLength)
	if s.Spec.Message != nil {
		q, err := queueKind.getObject(ctx, cluster, s.Spec.Message.QueueRef.Name)
		if err != nil {
			return err
		}
		return runOnBroker(ctx, cluster, q, "", func(ctx context.Context, q *connectedQueue) error {
			return sendJob(ctx, env, q, schedule.NewMessage(s, q.brokerName, name, time.Time{}))
		})
	}
	run, err := schedule.NewRun(s, name, time.Time{})
	if err != nil {
		return fmt.Errorf("%s: %w", scheduleKind.qualifiedName(s), err)
	}
	if err := cluster.Create(ctx, run); err != nil {
		return err
	}
	fmt.Fprintf(env.out, "%s.yardmaster.dev/%s created\n", strings.ToLower(run.GetKind()), run.GetName())
	return nil
}

// maxNextTimes bounds the output of schedule next.
const maxNextTimes = 1000

func newNextCommand(env *environment) *cobra.Command {
	count := 5
	command := scheduleKind.newObjectCommand(env, "next", "Show the next times of a Schedule",
		"Show the next times of a Schedule: in its time zone, with the jitter of each run, whether or not it is suspended.",
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
