// Command sessions measures what AgenticSessions cost while many of them run, on a real control plane with simulated nodes.
//
//	go run ./test/bench/sessions                           1,000 run; 5 bursts of 100 more
//	go run ./test/bench/sessions -sessions 100 -bursts 1
//
// It runs a release build of the operator with all its controllers. The time of a session counts from the API server's response to its
// creation until a watch shows its Job, for sessions that are created one at a time and for bursts. For comparison, a bare client creates
// the same objects and nothing else. Then sessions are deleted in bursts, with the operator and without it, until a watch shows that all
// their objects are deleted. The namespace enforces the Pod Security Standard restricted.
package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/clock"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/testenv"
)

type environment struct {
	harness.Environment
	sessions, burst, bursts, single int

	// created contains all sessions in the order of their creation.
	created []*v1alpha1.AgenticSession
}

func main() {
	env := &environment{Environment: "bench-sessions", sessions: 1000, burst: 100, bursts: 5, single: 50}
	harness.PositiveFlag(&env.sessions, "sessions", "number of sessions that run during the benchmark")
	harness.PositiveFlag(&env.burst, "burst", "number of sessions that are created and deleted at once")
	harness.PositiveFlag(&env.bursts, "bursts", "number of bursts")
	harness.PositiveFlag(&env.single, "single", "number of sessions that are created one at a time")
	harness.RunOnCluster(env.measureSessions, nil)
}

func (env *environment) measureSessions(ctx context.Context, c *harness.Cluster, operatorBinary string) error {
	env.createNamespace(ctx, c)
	o := startObserver(ctx, c, string(env.Environment))
	operator := env.StartOperator(ctx, operatorBinary, c, testenv.MetricsFlags()...)
	defer operator.Stop()
	env.createSessions(ctx, c, env.sessions, harness.CreateConcurrency)
	env.waitUntilRunning(ctx, c, o)
	harness.PrintProgress("%d sessions run", env.sessions)
	r := env.measureEnvironment(ctx, c, o, operator)
	r.deleted = env.measureDeletion(ctx, c, o)
	operator.Stop()
	r.deletedAlone = env.measureDeletion(ctx, c, o)
	return printReport(env, r)
}

type sessionResult struct {
	// single and atOnce are the times from a session to its Job, created one at a time and in bursts. bare is the time of the bare client.
	single, atOnce, bare []time.Duration
	// requests is the number of API requests per session until it runs.
	requests float64
	// rss and peakRSS of the operator, in bytes.
	rss, peakRSS int64
	// deleted is the time until all objects of a deleted session are deleted, and deletedAlone the same without the operator.
	deleted, deletedAlone []time.Duration
}

// measureEnvironment creates more sessions besides those that run.
func (env *environment) measureEnvironment(ctx context.Context, c *harness.Cluster, o *objectObserver, operator *testenv.Operator) (r sessionResult) {
	for range env.single {
		r.single = append(r.single, env.measureCreation(ctx, c, o, 1)...)
	}
	env.waitUntilRunning(ctx, c, o)
	before, _ := harness.APIRequests(harness.Must(harness.OperatorMetrics(ctx, operator)))
	for i := range env.bursts {
		took := env.measureCreation(ctx, c, o, env.burst)
		r.atOnce = append(r.atOnce, took...)
		env.waitUntilRunning(ctx, c, o)
		harness.PrintProgress("burst %d of %d: p99 %.3f s", i+1, env.bursts, harness.Quantile(took, .99).Seconds())
	}
	after, _ := harness.APIRequests(harness.Must(harness.OperatorMetrics(ctx, operator)))
	r.requests = (after - before) / float64(env.burst*env.bursts)
	r.rss, r.peakRSS = harness.Must2(harness.ProcessMemory(operator.Pid()))
	r.bare = env.measureBareClient(ctx, c, o)
	return r
}

// measureCreation creates the given number of sessions at once, and returns how long each took until its Job existed.
func (env *environment) measureCreation(ctx context.Context, c *harness.Cluster, o *objectObserver, number int) []time.Duration {
	return waitForEach(ctx, o, env.createSessions(ctx, c, number, number), o.jobCreationTime)
}

func waitForEach(ctx context.Context, o *objectObserver, since map[types.UID]time.Time, seen func(types.UID) (time.Time, bool)) (took []time.Duration) {
	harness.Check(harness.PollUntil(ctx, waitTimeout, func() (bool, error) {
		took = took[:0]
		for uid, startedAt := range since {
			observedAt, ok := seen(uid)
			if !ok {
				return false, o.WatchError()
			}
			took = append(took, max(observedAt.Sub(startedAt), 0))
		}
		return true, nil
	}))
	return took
}

// measureDeletion deletes one burst of sessions at once, and returns how long each took until all its objects were deleted.
func (env *environment) measureDeletion(ctx context.Context, c *harness.Cluster, o *objectObserver) []time.Duration {
	left := len(env.created) - env.burst
	if left < 0 {
		harness.Check(errors.New("fewer sessions are left than a burst deletes"))
	}
	last := env.created[left:]
	env.created = env.created[:left]
	startTimes := map[types.UID]time.Time{}
	group, requests := errgroup.WithContext(ctx)
	for _, s := range last {
		startTimes[s.UID] = time.Now()
		group.Go(func() error {
			return c.Delete(requests, s, client.PropagationPolicy(metav1.DeletePropagationBackground))
		})
	}
	harness.Check(group.Wait())
	return waitForEach(ctx, o, startTimes, o.deletionTime)
}

// waitTimeout bounds every wait.
const waitTimeout = 10 * time.Minute

func (env *environment) createNamespace(ctx context.Context, c client.Client) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: string(env.Environment), Labels: map[string]string{
		"pod-security.kubernetes.io/enforce": "restricted",
	}}}
	runner := env.NewRunner("default")
	runner.Spec.Template.Annotations = endless
	harness.Check(errors.Join(c.Create(ctx, ns), c.Create(ctx, runner)))
}

// endless are the annotations of a Pod that runs until it is deleted.
var endless = harness.RunningFor(10 * time.Hour)

// createSessions creates the given number of sessions with the given concurrency, and returns when the API server confirmed each of them.
func (env *environment) createSessions(ctx context.Context, c client.Client, number, atOnce int) map[types.UID]time.Time {
	var mu sync.Mutex
	stored := map[types.UID]time.Time{}
	group, requests := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for range number {
		s := &v1alpha1.AgenticSession{ObjectMeta: env.ObjectMeta(fmt.Sprintf("s%05d", len(env.created)))}
		s.Spec.Prompt = "Do the work."
		env.created = append(env.created, s)
		group.Go(func() error {
			err := c.Create(requests, s)
			now := time.Now()
			mu.Lock()
			defer mu.Unlock()
			stored[s.UID] = now
			return err
		})
	}
	harness.Check(group.Wait())
	return stored
}

// waitUntilRunning waits until all created sessions run. It polls slowly, because lists of
// thousands of objects would add load to the control plane.
func (env *environment) waitUntilRunning(ctx context.Context, c client.Reader, o *objectObserver) {
	reportedAt := time.Now()
	harness.Check(harness.PollUntil(ctx, waitTimeout, func() (bool, error) {
		running, err := env.countRunning(ctx, c)
		if err != nil || running == len(env.created) {
			return true, err
		}
		if time.Since(reportedAt) > 10*time.Second {
			reportedAt = time.Now()
			harness.PrintProgress("%d of %d sessions run", running, len(env.created))
		}
		return false, errors.Join(o.WatchError(), clock.SleepContext(ctx, time.Second))
	}))
}

func (env *environment) countRunning(ctx context.Context, c client.Reader) (running int, err error) {
	var list v1alpha1.AgenticSessionList
	harness.Check(c.List(ctx, &list, client.InNamespace(string(env.Environment))))
	for i := range list.Items {
		switch s := &list.Items[i]; s.Status.Phase {
		case v1alpha1.SessionRunning:
			running++
		case v1alpha1.SessionCompleted, v1alpha1.SessionFailed, v1alpha1.SessionStopped:
			return 0, fmt.Errorf("%s is %s: %+v", s.Name, s.Status.Phase, s.Status.Attempts)
		default:
		}
	}
	return running, nil
}

type objectObserver struct {
	harness.Observer

	// jobTimes contains when each session's Job was first observed, remainingObjects what exists of a session, and deletionTimes when its
	// last object was deleted. All are keyed by the session's UID.
	jobTimes, deletionTimes map[types.UID]time.Time
	remainingObjects        map[types.UID]map[string]bool
}

func startObserver(ctx context.Context, c *harness.Cluster, ns string) *objectObserver {
	o := &objectObserver{jobTimes: map[types.UID]time.Time{}, deletionTimes: map[types.UID]time.Time{}, remainingObjects: map[types.UID]map[string]bool{}}
	o.WatchLists(ctx, c, o.recordEvent, []client.ObjectList{
		&batchv1.JobList{}, &corev1.PodList{}, &corev1.SecretList{}, &corev1.ServiceAccountList{}, &networkingv1.NetworkPolicyList{},
	}, client.InNamespace(ns), client.HasLabels{agenticsession.LabelSessionUID})
	return o
}

func (o *objectObserver) recordEvent(event watch.Event, now time.Time) {
	object, ok := event.Object.(client.Object)
	if !ok {
		return
	}
	uid, what := types.UID(object.GetLabels()[agenticsession.LabelSessionUID]), fmt.Sprintf("%T %s", object, object.GetName())
	if _, isJob := object.(*batchv1.Job); isJob && o.jobTimes[uid].IsZero() {
		o.jobTimes[uid] = now
	}
	if event.Type != watch.Deleted {
		if o.remainingObjects[uid] == nil {
			o.remainingObjects[uid] = map[string]bool{}
		}
		o.remainingObjects[uid][what] = true
		return
	}
	delete(o.remainingObjects[uid], what)
	if len(o.remainingObjects[uid]) == 0 {
		o.deletionTimes[uid] = now
	}
}

func (o *objectObserver) jobCreationTime(uid types.UID) (at time.Time, seen bool) {
	o.Lock()
	defer o.Unlock()
	at, seen = o.jobTimes[uid]
	return at, seen
}

func (o *objectObserver) deletionTime(uid types.UID) (at time.Time, all bool) {
	o.Lock()
	defer o.Unlock()
	return o.deletionTimes[uid], len(o.remainingObjects[uid]) == 0 && !o.deletionTimes[uid].IsZero()
}

// measureBareClient creates the objects of one burst of sessions, with one create request for
// each object and nothing in between. It needs no AgenticSessions and stores no status.
func (env *environment) measureBareClient(ctx context.Context, c *harness.Cluster, o *objectObserver) []time.Duration {
	startTimes := map[types.UID]time.Time{}
	group, requests := errgroup.WithContext(ctx)
	for i := range env.burst {
		uid, name := uuid.NewUUID(), fmt.Sprintf("bare-%03d", i)
		startTimes[uid] = time.Now()
		group.Go(func() error {
			before, tried, job := env.newSessionObjects(name, uid)
			for _, object := range before {
				if err := c.Create(requests, object); err != nil {
					return err
				}
			}
			if err := c.Create(requests, tried, client.DryRunAll); err != nil {
				return err
			}
			return c.Create(requests, job)
		})
	}
	harness.Check(group.Wait())
	return waitForEach(ctx, o, startTimes, o.jobCreationTime)
}

// newSessionObjects returns the objects of one session: those that are created before the dry run of its Pod, that Pod, and the Job.
func (env *environment) newSessionObjects(name string, uid types.UID) (before []client.Object, tried *corev1.Pod, job *batchv1.Job) {
	metadata := env.ObjectMeta(name)
	metadata.Labels = map[string]string{agenticsession.LabelSessionUID: string(uid)}
	account := &corev1.ServiceAccount{ObjectMeta: metadata}
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metadata}
	policy.Spec.PodSelector.MatchLabels = metadata.Labels
	policy.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	secret := &corev1.Secret{ObjectMeta: metadata, StringData: map[string]string{"prompt": "Do what is to be done."}}
	job = &batchv1.Job{ObjectMeta: metadata}
	job.Spec.BackoffLimit = new(int32(0))
	job.Spec.Template.Labels, job.Spec.Template.Annotations = metadata.Labels, endless
	job.Spec.Template.Spec = corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, ServiceAccountName: name,
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(65532)), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{Name: "runner", Image: "registry.example/runner:1", SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}}},
	}
	tried = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-", Namespace: string(env.Environment)}, Spec: *job.Spec.Template.Spec.DeepCopy()}
	return []client.Object{account, policy, secret}, tried, job
}

const (
	// maxTimeToJob is the target for the 99th percentile of the time from a session to its Job.
	maxTimeToJob = 100 * time.Millisecond
	// maxTimeToDelete is the target for the 99th percentile of the time until all objects of a deleted session are deleted.
	maxTimeToDelete = 5 * time.Second
	// maxOperatorRSS is the target for the operator's peak memory, in bytes.
	maxOperatorRSS = 150e6
)

func printReport(env *environment, r sessionResult) error {
	fmt.Printf("\n%d sessions run\n", env.sessions)
	w := harness.NewTable("seconds\tp50\tp90\tp99\tmax\t")
	row := func(label string, all []time.Duration) time.Duration {
		harness.PrintQuantiles(w, label, "%.3f", all, .5, .9, .99, 1)
		return harness.Quantile(all, .99)
	}
	single := row("from a session to its Job, one at a time", r.single)
	atOnce := row(fmt.Sprintf("the same, %d at once", env.burst), r.atOnce)
	bare := row("the same objects created by a bare client", r.bare)
	deleted := row(fmt.Sprintf("until all objects are deleted, %d sessions at once", env.burst), r.deleted)
	alone := row("the same without the operator", r.deletedAlone)
	_ = w.Flush() // it writes to standard output
	fmt.Printf("%.1f times the bare client's time\n", atOnce.Seconds()/bare.Seconds())
	fmt.Printf("%.1f API requests per session until it runs; RSS %.0f MB, peak %.0f MB\n", r.requests, float64(r.rss)/1e6, float64(r.peakRSS)/1e6)
	return errors.Join(
		harness.CheckTarget(fmt.Sprintf("p99 from a session to its Job, one at a time ≤ %s", maxTimeToJob), single <= maxTimeToJob),
		harness.CheckTarget(fmt.Sprintf("p99 from a session to its Job, %d at once ≤ %s", env.burst, maxTimeToJob), atOnce <= maxTimeToJob),
		harness.CheckTarget(fmt.Sprintf("p99 until all objects are deleted, with the operator ≤ %s", maxTimeToDelete), deleted <= maxTimeToDelete),
		harness.CheckTarget(fmt.Sprintf("p99 until all objects are deleted, without the operator ≤ %s", maxTimeToDelete), alone <= maxTimeToDelete),
		harness.CheckTarget("the operator's RSS ≤ 150 MB", r.peakRSS <= maxOperatorRSS),
	)
}
