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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
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

func ago(d time.Duration) *metav1.Time {
	return &metav1.Time{Time: time.Now().Add(-d).Truncate(time.Second)}
}

func create[T client.Object](t *testing.T, object T, setStatus func(T)) T {
	t.Helper()
	require.NoError(t, cluster.Create(t.Context(), object))
	return update(t, object, setStatus)
}

func update[T client.Object](t *testing.T, object T, setStatus func(T)) T {
	t.Helper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { // a controller may change it too
		if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		setStatus(object)
		return cluster.Status().Update(t.Context(), object)
	})
	require.NoError(t, err)
	return object
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: *ago(3 * time.Minute)}
}

func newSequence(ns, name string, steps ...string) *v1alpha1.SequentialJob {
	builder := testbuilder.SequentialJob(name, ns)
	for _, step := range steps {
		builder.Step(step, testbuilder.StepImage("registry.example/etl:1"))
	}
	sj := builder.Obj()
	sj.ObjectMeta = metav1.ObjectMeta{Name: name, Namespace: ns}
	sj.Status = v1alpha1.SequentialJobStatus{}
	return sj
}

func failedSequence(t *testing.T, ns, name, message, output string) *v1alpha1.SequentialJob {
	sj := newSequence(ns, name, "backup", "migrate", "seed", "verify")
	return create(t, sj, func(sj *v1alpha1.SequentialJob) {
		sj.Status = v1alpha1.SequentialJobStatus{
			Phase: v1alpha1.PhaseFailed, Reason: "BackoffLimitExceeded", RunStatus: v1alpha1.RunStatus{Run: 1, Times: v1alpha1.Times{StartTime: ago(40 * time.Minute), CompletionTime: ago(12 * time.Minute)}},
			ObservedStatus: v1alpha1.ObservedStatus{Conditions: []metav1.Condition{condition(v1alpha1.ConditionReady, metav1.ConditionFalse, "Failed", "step migrate failed")}},
			Steps: []v1alpha1.StepStatus{
				{Name: "backup", Phase: v1alpha1.StepSucceeded, JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Attempt: 1, Run: 1}, JobName: name + "-backup", Times: v1alpha1.Times{StartTime: ago(40 * time.Minute), CompletionTime: ago(25 * time.Minute)}}, Output: output},
				{Name: "migrate", Phase: v1alpha1.StepFailed, JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Attempt: 3, Run: 1}, JobName: name + "-migrate", Times: v1alpha1.Times{StartTime: ago(25 * time.Minute), CompletionTime: ago(12 * time.Minute)}, ExitCode: new(int32(3)), Explanation: v1alpha1.Explanation{Reason: "BackoffLimitExceeded", Message: message}}, FailedAttempts: 3},
				{Name: "seed", Phase: v1alpha1.StepSkipped, JobAttempt: v1alpha1.JobAttempt{Explanation: v1alpha1.Explanation{Reason: "PreviousStepFailed"}}},
				{Name: "verify", Phase: v1alpha1.StepSkipped, JobAttempt: v1alpha1.JobAttempt{Explanation: v1alpha1.Explanation{Reason: "PreviousStepFailed"}}},
			},
		}
	})
}

func runningSequence(t *testing.T, ns, name string) *v1alpha1.SequentialJob {
	sj := newSequence(ns, name, "extract", "transform", "load")
	return create(t, sj, func(sj *v1alpha1.SequentialJob) {
		sj.Status = v1alpha1.SequentialJobStatus{
			Phase: v1alpha1.PhaseRunning, RunStatus: v1alpha1.RunStatus{Run: 1, Times: v1alpha1.Times{StartTime: ago(9 * time.Minute)}}, Progress: v1alpha1.Progress{CurrentStep: "transform"},
			ObservedStatus: v1alpha1.ObservedStatus{Conditions: []metav1.Condition{condition(v1alpha1.ConditionReady, metav1.ConditionFalse, "Running", "step transform runs")}},
			Steps: []v1alpha1.StepStatus{
				{Name: "extract", Phase: v1alpha1.StepSucceeded, JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Attempt: 1, Run: 1}, JobName: name + "-extract", Times: v1alpha1.Times{StartTime: ago(9 * time.Minute), CompletionTime: ago(5 * time.Minute)}}},
				{Name: "transform", Phase: v1alpha1.StepRunning, JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Attempt: 1, Run: 1}, JobName: name + "-transform", Times: v1alpha1.Times{StartTime: ago(5 * time.Minute)}}},
				{Name: "load", Phase: v1alpha1.StepPending},
			},
		}
	})
}

func waitingSequence(t *testing.T, ns, name string) *v1alpha1.SequentialJob {
	sj := newSequence(ns, name, "build", "deploy")
	sj.Spec.Containers[1].Step = &v1alpha1.StepOptions{RequireApproval: true}
	return create(t, sj, func(sj *v1alpha1.SequentialJob) {
		sj.Status = v1alpha1.SequentialJobStatus{
			Phase: v1alpha1.PhaseSuspended, Reason: v1alpha1.ReasonApprovalRequired, RunStatus: v1alpha1.RunStatus{Run: 1, Times: v1alpha1.Times{StartTime: ago(20 * time.Minute)}},
			ObservedStatus: v1alpha1.ObservedStatus{ObservedGeneration: sj.Generation},
			Approval:       &v1alpha1.SequenceApproval{Run: 1, Step: "deploy", Hash: "abc"},
			Steps: []v1alpha1.StepStatus{
				{Name: "build", Phase: v1alpha1.StepSucceeded, JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Attempt: 1, Run: 1}, JobName: name + "-build", Times: v1alpha1.Times{StartTime: ago(20 * time.Minute), CompletionTime: ago(16 * time.Minute)}}},
				{Name: "deploy", Phase: v1alpha1.StepPending, JobAttempt: v1alpha1.JobAttempt{Explanation: v1alpha1.Explanation{Reason: v1alpha1.ReasonApprovalRequired, Message: "waits for an approval"}}},
			},
		}
	})
}

func newQueue(t *testing.T, ns, name, message string, dead int64) *v1alpha1.Queue {
	q := &v1alpha1.Queue{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns},
		Spec:       v1alpha1.QueueSpec{QueueSettings: v1alpha1.QueueSettings{Broker: &v1alpha1.Broker{Engine: v1alpha1.EngineNATS, BrokerAccess: v1alpha1.BrokerAccess{URLSecretRef: v1alpha1.KeyReference{LocalReference: v1alpha1.LocalReference{Name: "broker"}}}}}},
	}
	return create(t, q, func(q *v1alpha1.Queue) {
		q.Status = v1alpha1.QueueStatus{
			Name: "mail", Engine: v1alpha1.EngineNATS, MessageCounts: v1alpha1.MessageCounts{Backlog: new(int64(1280)), InFlight: new(int64(16)), WaitP95: &metav1.Duration{Duration: 4200 * time.Millisecond}}, Delayed: new(int64(4)), Dead: &dead, OldestTime: ago(90 * time.Second),
			ArrivalRate: new(resource.MustParse("31500m")), ServiceRate: new(resource.MustParse("28")),
			ObservedStatus: v1alpha1.ObservedStatus{Conditions: []metav1.Condition{
				condition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, message),
				condition(v1alpha1.ConditionDeadLettersPresent, metav1.ConditionTrue, v1alpha1.ReasonDeadLetters, message),
			}},
		}
	})
}

func newPool(t *testing.T, ns, name, message string) *v1alpha1.WorkerPool {
	wp := &v1alpha1.WorkerPool{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns},
		Spec: v1alpha1.WorkerPoolSpec{
			Image: "registry.example/worker:2", Queues: []v1alpha1.PoolQueue{{LocalReference: v1alpha1.LocalReference{Name: "mail"}}}, Concurrency: 4,
			Autoscaling: &v1alpha1.Autoscaling{MinReplicas: 2, MaxReplicas: 40, WaitP95: &v1alpha1.Duration{Duration: metav1.Duration{Duration: time.Minute}}},
		},
	}
	return create(t, wp, func(wp *v1alpha1.WorkerPool) {
		wp.Status = v1alpha1.WorkerPoolStatus{
			Desired: 12, WorkerCounts: v1alpha1.WorkerCounts{Replicas: 13, Ready: 11, Draining: 1}, Busy: new(int32(9)), MessageCounts: v1alpha1.MessageCounts{Backlog: new(int64(1280)), InFlight: new(int64(16)), WaitP95: &metav1.Duration{Duration: 4200 * time.Millisecond}}, CurrentRevision: name + "-1", UpdatedRevision: name + "-2",
			ObjectiveMet: metav1.ConditionTrue,
			Revisions: []v1alpha1.RevisionStatus{
				{Name: name + "-2", Version: "2", Image: "registry.example/worker:2", WorkerCounts: v1alpha1.WorkerCounts{Replicas: 2, Ready: 2}, Succeeded: new(int64(412)), Failed: new(int64(3))},
				{Name: name + "-1", Version: "1", Image: "registry.example/worker:1", WorkerCounts: v1alpha1.WorkerCounts{Replicas: 11, Ready: 9, Draining: 1}, Succeeded: new(int64(90211)), Failed: new(int64(120))},
			},
			LastDecision: &v1alpha1.ScaleDecision{
				Time: ago(20 * time.Second), Recommendation: 12, Explanation: v1alpha1.Explanation{Reason: "BacklogAboveObjective", Message: message},
			},
			ObservedStatus: v1alpha1.ObservedStatus{Conditions: []metav1.Condition{condition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, message)}},
		}
	})
}

func createSession(t *testing.T, ns, name, text string, interactive bool) *v1alpha1.AgenticSession {
	s := &v1alpha1.AgenticSession{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns},
		Spec: v1alpha1.AgenticSessionSpec{
			Prompt: text, DisplayName: text, Limits: v1alpha1.SessionLimits{RunLimits: v1alpha1.RunLimits{Timeout: v1alpha1.NewDuration(30 * time.Minute), MaxCostUSD: new(v1alpha1.Number("2.50"))}},
			Repos: []v1alpha1.SessionRepo{{GitSource: v1alpha1.GitSource{URL: "https://git.example/team/shop.git", Branch: "main"}}}, Interactive: interactive,
		},
	}
	return create(t, s, func(s *v1alpha1.AgenticSession) {
		s.Status = v1alpha1.AgenticSessionStatus{
			Phase: v1alpha1.SessionRunning, RunStatus: v1alpha1.RunStatus{Run: 1, Times: v1alpha1.Times{StartTime: ago(15 * time.Minute)}}, ActiveDuration: v1alpha1.Duration{Duration: metav1.Duration{Duration: 8 * time.Minute}},
			Attempt:      v1alpha1.SessionAttempt{JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Run: 1, Attempt: 2}, JobName: name + "-r1-a2", Times: v1alpha1.Times{StartTime: ago(6 * time.Minute)}}, ActiveSince: ago(5 * time.Minute), CostUSD: new(v1alpha1.Number("0.31"))},
			TotalCostUSD: new(v1alpha1.Number("0.84")),
			Attempts:     []v1alpha1.SessionAttempt{{JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Run: 1, Attempt: 1}, Explanation: v1alpha1.Explanation{Reason: "ExitedWithError", Message: text}, Times: v1alpha1.Times{StartTime: ago(15 * time.Minute), CompletionTime: ago(7 * time.Minute)}}, Outcome: v1alpha1.RunRetried, CostUSD: new(v1alpha1.Number("0.53"))}},
			Result: &v1alpha1.SessionResult{AttemptNumber: v1alpha1.AttemptNumber{Run: 1, Attempt: 1}, Summary: text, Repositories: []v1alpha1.SessionRepositoryResult{
				{Name: "shop", Branch: "fix-tests", Commit: "4f1c9a7e22b08d51", Pushed: true, PullRequestURL: "https://git.example/team/shop/pull/17"},
				{Name: "docs", Branch: text, Error: text, PullRequestURL: text},
			}},
			ObservedStatus: v1alpha1.ObservedStatus{Conditions: []metav1.Condition{condition(v1alpha1.ConditionReady, metav1.ConditionFalse, "Running", "")}},
		}
	})
}

func newSchedule(t *testing.T, ns, name, message string) *v1alpha1.Schedule {
	s := &v1alpha1.Schedule{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns},
		Spec: v1alpha1.ScheduleSpec{
			Cron:          v1alpha1.Cron{Schedule: "30 2 * * *", TimeZone: "Europe/Berlin"},
			SequentialJob: &v1alpha1.ScheduleTemplate{Spec: runtime.RawExtension{Raw: []byte(`{"containers":[{"name":"extract","image":"registry.example/etl:1"}]}`)}},
		},
	}
	return create(t, s, func(s *v1alpha1.Schedule) {
		s.Status = v1alpha1.ScheduleStatus{
			LastScheduleTime: ago(11 * time.Hour), NextScheduleTime: ago(-13 * time.Hour), LastSuccessfulTime: ago(11 * time.Hour), Runs: 31, Missed: 1,
			LastMissed:     &v1alpha1.MissedTime{Time: *ago(59 * time.Hour), Explanation: v1alpha1.Explanation{Reason: v1alpha1.MissedTooLate, Message: message}},
			ObservedStatus: v1alpha1.ObservedStatus{Conditions: []metav1.Condition{condition(v1alpha1.ConditionReady, metav1.ConditionTrue, "Scheduled", message), condition(v1alpha1.ConditionLastRunSucceeded, metav1.ConditionTrue, v1alpha1.ReasonRunSucceeded, "")}},
		}
	})
}

func newWorkerPod(t *testing.T, ns, poolName, name string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: ns, Annotations: map[string]string{"yardmaster.dev/workerpool": poolName},
			Labels: map[string]string{"yardmaster.dev/workerpool": poolName, "yardmaster.dev/revision": "1"},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "worker", Image: "registry.example/worker:1"}}, SchedulerName: "none"},
	}
	return create(t, pod, func(pod *corev1.Pod) {
		pod.Status.Phase, pod.Status.Conditions = corev1.PodRunning, []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	})
}

// stepPod creates the Pod of a step, which the proxy has a log of.
func stepPod(t *testing.T, sj *v1alpha1.SequentialJob, step string) {
	createPod(t, sj.Namespace, sj.Name+"-"+step, step, map[string]string{v1alpha1.LabelSequentialJobUID: string(sj.UID), v1alpha1.LabelStep: step})
}

// sessionPod creates the Pod of a session, which the proxy has a log of, and which accepts messages.
func sessionPod(t *testing.T, s *v1alpha1.AgenticSession) {
	createPod(t, s.Namespace, s.Status.Attempt.JobName, v1alpha1.RunnerContainer, map[string]string{"yardmaster.dev/session-uid": string(s.UID)})
}

// createPod creates a running Pod of a Job. Its owner is an object with the name of the Job: without one, the garbage collector
// would delete the Pod, and a Job would be controlled.
func createPod(t *testing.T, ns, job, container string, labels map[string]string) {
	t.Helper()
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: job, Namespace: ns}}
	require.NoError(t, cluster.Create(t.Context(), owner))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: job + "-x7k2p", Namespace: ns, Labels: labels,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: job, UID: owner.UID, Controller: new(true)}},
		},
		Spec: corev1.PodSpec{NodeName: "", Containers: []corev1.Container{{
			Name: container, Image: "registry.example/etl:1", Ports: []corev1.ContainerPort{{Name: "session", ContainerPort: 8080}},
		}}, SchedulerName: "none"},
	}
	create(t, pod, func(pod *corev1.Pod) {
		pod.Status.Phase, pod.Status.Conditions = corev1.PodRunning, []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: container, Image: "registry.example/etl:1", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: *ago(time.Minute)}}}}
	})
}
