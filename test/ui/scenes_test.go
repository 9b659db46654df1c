package ui

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

// sceneTimeout is how long a test waits for a page to be complete. What needs scrolling does not become visible later.
const sceneTimeout = 90 * time.Second

// scene is a situation in which someone opens the page.
type scene struct {
	name, path string
	// The state, its cause and the next action are visible without scrolling.
	state, cause, next string
}

func TestEachSceneShowsStateCauseAndNextActionWithoutScrolling(t *testing.T) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}} // a name of its own for the pictures
	require.NoError(t, cluster.Create(t.Context(), ns))
	t.Cleanup(func() { _ = cluster.Delete(context.Background(), ns) })
	u := startUI(t, "-n", "shop")
	u.proxy.buildLogs()
	buildScenes(t, "shop")
	b := openBrowser(t, u)
	b.run("changing the size", command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 1280, Height: 800, DeviceScaleFactor: 1}))
	for _, s := range []scene{
		{"overview", "/", "$2.83", "there is no migration to version 8", "Approve deploy"},
		{"sequence", "/k/seq/shop/schema-migration", "Failed", "ERROR: there is no migration to version 8", "Rerun from the failed step"},
		{"approval", "/k/seq/shop/release", "Suspended", "step deploy waits for an approval", "Approve deploy"},
		{"quota", "/k/seq/shop/weekly-report", "Running", "exceeded quota: compute", "Suspend"},
		{"queue", "/k/queue/shop/mail", "48210", "Arrivals", "Suspend"},
		{"dead-letters", "/k/queue/shop/orders", "DeadLetters", "17 dead letters", "Show dead letters"},
		{"rollout", "/k/pool/shop/resizers", "rolling out", "3 of 3 workers of revision resizers-2 exit with code 137", "Restart workers"},
		{"limit", "/k/pool/shop/mailers", "40 of 40", "needs 71 workers, and maxReplicas is 40", "Suspend scaling"},
		{"budget", "/k/session/shop/upgrade-deps", "Stopped", "$2.52 of $2.50", "Restart"},
		{"conversation", "/k/session/shop/fix-checkout", "Running", "The total ignores the discount", "Send"},
		{"schedule", "/k/schedule/shop/nightly-etl", "Failed", "step load failed: the warehouse is full", "Trigger a run now"},
		{"stale", "/stale", "Zombie", "BackoffLimitExceeded", "Explain"},
	} {
		for _, colors := range []string{"light", "dark"} {
			b.useColors(colors)
			b.open(s.path)
			ctx, cancel := context.WithTimeout(t.Context(), sceneTimeout)
			err := poll.UntilNil(ctx, func() error {
				for _, text := range []string{s.state, s.cause, s.next} {
					if !b.isVisible(text) {
						return fmt.Errorf("%s does not show %q without scrolling", s.name, text)
					}
				}
				return nil
			})
			cancel()
			b.screenshot("ui-" + s.name + "-" + colors)
			if err != nil {
				t.Error(err)
				break
			}
		}
	}
	b.expectNoProblems()
}

// isVisible reports whether the window shows a text without scrolling.
func (b *browser) isVisible(text string) bool {
	return evaluate[bool](b, fmt.Sprintf(`[...document.querySelectorAll('main *, #log *')].some(e => {
		const box = e.getBoundingClientRect();
		return e.textContent.includes(%s) && ![...e.children].some(c => c.textContent.includes(%[1]s)) && box.height > 0 && box.top >= 0 && box.bottom <= innerHeight && box.right <= innerWidth;
	})`, quote(text)))
}

func (p *apiServerProxy) buildLogs() {
	for i := range 40 {
		p.addLogLine(fmt.Sprintf("migrating table %02d of 41", i+1))
	}
	p.addLogLine("ERROR: there is no migration to version 8")
	p.addLogLine(`{"type":"started","model":"large"}`)
	p.addLogLine(`{"type":"text","text":"I run the tests of the checkout first."}`)
	p.addLogLine(`{"type":"toolCall","tool":{"name":"Bash","input":{"command":"go test ./checkout/..."}}}`)
	p.addLogLine(`{"type":"toolResult","failed":true,"text":"--- FAIL: TestTotal\n    total_test.go:31: total 120, want 108"}`)
	p.addLogLine(`{"type":"text","text":"The total ignores the discount: sum adds the prices before it is applied."}`)
	p.addLogLine(editEvent("checkout/total.go", "return sum(items)", "return sum(items) - discount(items)"))
	p.addLogLine(`{"type":"toolCall","tool":{"name":"Bash","input":{"command":"go test ./checkout/..."}}}`)
	p.addLogLine(`{"type":"toolResult","text":"ok  	shop/checkout	0.412s"}`)
	p.addLogLine(`{"type":"usage","total":true,"usage":{"inputTokens":48210,"outputTokens":3120},"costUSD":0.84}`)
	p.addLogLine(`{"type":"text","text":"The tests pass. Should I also open a pull request?"}`)
}

// buildScenes creates the objects of a team on a bad morning.
func buildScenes(t *testing.T, ns string) {
	t.Helper()
	migration := failedSequence(t, ns, "schema-migration", "container migrate exited with code 3: there is no migration to version 8", "schema=5")
	stepPod(t, migration, "migrate")
	waitingSequence(t, ns, "release")
	update(t, runningSequence(t, ns, "weekly-report"), func(sj *v1alpha1.SequentialJob) {
		sj.Status.Conditions = append(sj.Status.Conditions, condition(v1alpha1.ConditionResourcesUnavailable, metav1.ConditionTrue, "FailedCreate", "exceeded quota: compute, requested: requests.cpu=4, used: requests.cpu=30, limited: requests.cpu=32"))
	})
	runningSequence(t, ns, "import-orders")
	buildSchedule(t, ns, "nightly-etl", 11, 4)
	buildSchedule(t, ns, "backup", 8, 0)
	buildLoads(t, ns)
	buildSessions(t, ns)
	create(t, staleJob(ns, "train"), failStaleJob)
}

// buildSchedule creates a Schedule with its daily runs, of which the last ones failed.
func buildSchedule(t *testing.T, ns, name string, runs, failed int) {
	t.Helper()
	schedule := newSchedule(t, ns, name, "the operator was away")
	for i := range runs {
		age := time.Duration(runs-i)*24*time.Hour - 15*time.Hour
		run := newSequence(ns, fmt.Sprintf("%s-%d", name, 29500000+i*1440), "extract", "transform", "load")
		run.OwnerReferences = decision.ControllerReferences("Schedule", schedule)
		run.Annotations = map[string]string{v1alpha1.AnnotationScheduledTime: ago(age).UTC().Format(time.RFC3339)}
		create(t, run, func(sj *v1alpha1.SequentialJob) {
			sj.Status = v1alpha1.SequentialJobStatus{Phase: v1alpha1.PhaseCompleted, RunStatus: v1alpha1.RunStatus{Run: 1, Times: v1alpha1.Times{StartTime: ago(age), CompletionTime: ago(age - time.Duration(4+i*i%9)*time.Minute)}}}
			if i >= runs-failed {
				sj.Status.Phase, sj.Status.Reason = v1alpha1.PhaseFailed, "BackoffLimitExceeded"
				sj.Status.Steps = []v1alpha1.StepStatus{{Name: "load", Phase: v1alpha1.StepFailed, JobAttempt: v1alpha1.JobAttempt{Explanation: v1alpha1.Explanation{Message: "the warehouse is full"}}}}
			}
		})
	}
	update(t, schedule, func(s *v1alpha1.Schedule) {
		if failed > 0 {
			s.Status.LastMissed, s.Status.Missed = nil, 0
			s.Status.Conditions[1] = condition(v1alpha1.ConditionLastRunSucceeded, metav1.ConditionFalse, "Failed", "step load failed: the warehouse is full")
		}
	})
}

// buildLoads creates a queue that grows because its pool is at its limit, one with dead letters, and a pool with a bad rollout.
func buildLoads(t *testing.T, ns string) {
	t.Helper()
	orders := newQueue(t, ns, "orders", "17 dead letters", 17)
	update(t, orders, func(q *v1alpha1.Queue) { q.Status.Backlog, q.Status.OldestTime = new(int64(12)), ago(2*time.Second) })
	mail := newQueue(t, ns, "mail", "", 0)
	update(t, mail, func(q *v1alpha1.Queue) {
		q.Status.Backlog, q.Status.OldestTime, q.Status.ArrivalRate = new(int64(48210)), ago(26*time.Minute), new(resource.MustParse("120500m"))
		q.Status.WaitP95, q.Status.Conditions = &metav1.Duration{Duration: 25 * time.Minute}, q.Status.Conditions[:1]
	})
	update(t, newPool(t, ns, "mailers", "needs 71 workers, and maxReplicas is 40"), func(wp *v1alpha1.WorkerPool) {
		wp.Status.Desired, wp.Status.Ready, wp.Status.Replicas, wp.Status.Busy, wp.Status.Draining = 40, 40, 40, new(int32(40)), 0
		wp.Status.Backlog, wp.Status.ObjectiveMet, wp.Status.UpdatedRevision = new(int64(48210)), metav1.ConditionFalse, wp.Status.CurrentRevision
		wp.Status.Conditions = append(wp.Status.Conditions, condition(v1alpha1.ConditionScalingLimited, metav1.ConditionTrue, "MaxReplicas", "the backlog needs 71 workers, and maxReplicas is 40"))
	})
	update(t, newPool(t, ns, "resizers", "the backlog is below the objective"), func(wp *v1alpha1.WorkerPool) {
		wp.Status.Revisions[0].Ready, wp.Status.Revisions[0].Succeeded = 0, nil
		wp.Status.Conditions = append(wp.Status.Conditions, condition(v1alpha1.ConditionProgressing, metav1.ConditionFalse, "RolloutStopped", "3 of 3 workers of revision resizers-2 exit with code 137 (OOMKilled); revision resizers-1 serves"))
	})
}

// buildSessions creates a session that talks, one that has spent its budget, and one that completed.
func buildSessions(t *testing.T, ns string) {
	t.Helper()
	sessionPod(t, update(t, createSession(t, ns, "fix-checkout", "Fix the total of the checkout, which ignores discounts.", true), func(s *v1alpha1.AgenticSession) {
		s.Status.Attempts, s.Status.Result = nil, nil
	}))
	upgrade := createSession(t, ns, "upgrade-deps", "Upgrade all dependencies of the shop, and run its tests.", false)
	sessionPod(t, upgrade)
	update(t, upgrade, func(s *v1alpha1.AgenticSession) {
		ended := s.Status.Attempt
		ended.Outcome, ended.CompletionTime, ended.CostUSD, ended.Reason, ended.Message = v1alpha1.RunStopped, ago(time.Minute), new(v1alpha1.Number("1.99")), "BudgetExceeded", "the attempts cost $2.52 of $2.50"
		s.Status.Phase, s.Status.StoppedReason, s.Status.TotalCostUSD = v1alpha1.SessionStopped, "BudgetExceeded", new(v1alpha1.Number("2.52"))
		s.Status.Attempts, s.Status.Attempt = append(s.Status.Attempts, ended), v1alpha1.SessionAttempt{}
		s.Status.Result.Repositories = s.Status.Result.Repositories[:1]
	})
}
