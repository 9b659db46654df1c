package controller

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/test/require"
)

func newTestSession(uid types.UID) *v1alpha1.AgenticSession {
	s := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "fix", UID: uid}}
	s.Status.Attempt.JobName = "fix-r1-a1"
	return s
}

func TestDeletedPodIsObservedUntilAttemptEnds(t *testing.T) {
	d := newDeletedPods()
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "fix-r1-a1-x", UID: "pod", Labels: map[string]string{
		agenticsession.LabelSession: "fix", agenticsession.LabelSessionUID: "one",
	}}}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	d.eventHandler().Delete(context.Background(), event.DeleteEvent{Object: &pod}, queue)
	require.True(t, queue.Len() == 1, "the session is not requeued")
	s := newTestSession("one")
	got, uid := d.withDeletedPod(nil, s)
	require.True(t, len(got) == 1 && got[0].UID == "pod" && uid == "pod", "%d Pods", len(got))
	got, uid = d.withDeletedPod([]corev1.Pod{pod}, s)
	require.True(t, len(got) == 1 && uid == "", "the Pod is listed twice")
	podsOf := func(s *v1alpha1.AgenticSession) int {
		pods, _ := d.withDeletedPod(nil, s)
		return len(pods)
	}
	require.True(t, podsOf(newTestSession("another of its name")) == 0, "another session with the same name gets the Pod")
	r := &Reconciler{createdJobs: kube.NewStore[createdJob](), deletedPods: d, workspaces: newWorkspaceReservations()}
	r.forgetUnused(s)
	require.True(t, podsOf(s) == 1, "the Pod is forgotten while its attempt is open")
	s.Status.Attempt.JobName = ""
	r.forgetUnused(s)
	require.True(t, podsOf(s) == 0, "the Pod is kept after its attempt ended")
}

func TestDeletionIsMeasuredUntilLastJobAndPodAreDeleted(t *testing.T) {
	metadata := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: "ns", Labels: map[string]string{agenticsession.LabelSessionUID: "1"}}
	}
	job, pod := &batchv1.Job{ObjectMeta: metadata("job")}, &corev1.Pod{ObjectMeta: metadata("pod")}
	deletionTime := time.Unix(1e9, 0)
	inForeground := new(metav1.NewTime(deletionTime.Add(-time.Minute)))
	for title, test := range map[string]struct {
		deleted  *metav1.Time
		existing []client.Object
		want     []time.Duration
	}{
		"a Job and its Pod are deleted one after the other": {nil, []client.Object{job, pod}, []time.Duration{2 * time.Second}},
		"a session without a Job":                           {nil, nil, nil},
		"a session deleted in the foreground":               {inForeground, nil, []time.Duration{time.Minute}},
	} {
		t.Run(title, func(t *testing.T) {
			now := testingclock.NewFakePassiveClock(deletionTime)
			byUID := func(o client.Object) []string { return []string{o.GetLabels()[agenticsession.LabelSessionUID]} }
			children := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(test.existing...).
				WithIndex(&batchv1.Job{}, uidIndex, byUID).WithIndex(&corev1.Pod{}, uidIndex, byUID).Build()
			d := newDeletionTracker(children, now)
			var durations []time.Duration
			d.observeDuration = func(duration time.Duration) { durations = append(durations, duration) }
			d.sessionDeleted(t.Context(), &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{
				Name: "fix", Namespace: "ns", UID: "1", DeletionTimestamp: test.deleted,
			}})
			for i, object := range test.existing {
				now.SetTime(deletionTime.Add(time.Duration(i+1) * time.Second))
				require.NoError(t, children.Delete(t.Context(), object.DeepCopyObject().(client.Object)))
				d.childDeleted(t.Context(), object)
			}
			require.True(t, slices.Equal(durations, test.want) && len(d.deletedSince) == 0,
				"measured %v, want %v; %d sessions are still tracked", durations, test.want, len(d.deletedSince))
		})
	}
}

// staleCache lists the objects of another client.
type staleCache struct {
	cache.Cache

	stored client.Client
}

func (c staleCache) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return c.stored.List(ctx, list, options...)
}

func TestJobsAndPodsOfADeletedSessionAreDeletedIfTheyBelongToIt(t *testing.T) {
	object := func(o client.Object, name, ownerKind string, owner types.UID) client.Object {
		o.SetNamespace("ns")
		o.SetName(name)
		o.SetUID(types.UID(name))
		o.SetLabels(map[string]string{agenticsession.LabelSessionUID: "1"})
		if owner != "" {
			o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "x/v1", Kind: ownerKind, Name: "x", UID: owner, Controller: new(true)}})
		}
		return o
	}
	ofSession := func(name string) client.Object { return object(&batchv1.Job{}, name, "AgenticSession", "1") }
	ofJob := func(name string, job types.UID) client.Object { return object(&corev1.Pod{}, name, "Job", job) }
	for title, row := range map[string]struct {
		cached []client.Object
		// changed are objects that are not stored as they are cached.
		changed []client.Object
		left    []string
		retries bool
	}{
		"a Job and its Pod":                           {cached: []client.Object{ofSession("job"), ofJob("pod", "job")}},
		"a Pod whose Job is deleted already":          {cached: []client.Object{ofJob("pod", "job")}},
		"objects of others with the label":            {cached: []client.Object{object(&batchv1.Job{}, "job", "AgenticSession", "2"), ofJob("pod", "job")}, left: []string{"job", "pod"}},
		"a Pod without an owner":                      {cached: []client.Object{object(&corev1.Pod{}, "pod", "", "")}, left: []string{"pod"}},
		"a Job that lost its owner since it was read": {cached: []client.Object{ofSession("job"), ofJob("pod", "job")}, changed: []client.Object{object(&batchv1.Job{}, "job", "", "")}, left: []string{"job", "pod"}, retries: true},
		"a session without objects":                   {},
	} {
		t.Run(title, func(t *testing.T) {
			builder := func() *fake.ClientBuilder {
				b := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme)
				byUID := func(o client.Object) []string { return []string{o.GetLabels()[agenticsession.LabelSessionUID]} }
				return b.WithIndex(&batchv1.Job{}, uidIndex, byUID).WithIndex(&corev1.Pod{}, uidIndex, byUID).WithObjects(row.cached...)
			}
			cached, stored := builder().Build(), builder().Build()
			for _, changed := range row.changed {
				require.NoError(t, stored.Update(t.Context(), changed))
			}
			r := &Reconciler{Clients: kube.Clients{Client: stored}, options: Options{Children: staleCache{stored: cached}}}
			for range 2 { // twice: the second time finds what the cache still shows
				result, err := r.remove(t.Context(), deletedSession{"ns", "1"})
				require.True(t, err == nil && (result.RequeueAfter > 0) == row.retries, "result %+v, error %v", result, err)
			}
			var left []string
			jobs, pods := &batchv1.JobList{}, &corev1.PodList{}
			require.NoError(t, errors.Join(stored.List(t.Context(), jobs), stored.List(t.Context(), pods)))
			for i := range jobs.Items {
				left = append(left, jobs.Items[i].Name)
			}
			for i := range pods.Items {
				left = append(left, pods.Items[i].Name)
			}
			require.True(t, slices.Equal(left, row.left), "%v are left, want %v", left, row.left)
		})
	}
}

func newSessionInWorkspace(name string, uid types.UID) *v1alpha1.AgenticSession {
	s := newTestSession(uid)
	s.Name, s.Status.Workspace.ClaimRef.Name = name, "shared"
	return s
}

func TestOnlyOneSessionReservesAWorkspaceUntilItIsReleased(t *testing.T) {
	for title, release := range map[string]func(w *workspaceReservations, first *v1alpha1.AgenticSession){
		"the session ended": func(w *workspaceReservations, first *v1alpha1.AgenticSession) {
			first.Status.Attempt.JobName = ""
			w.releaseUnused(first)
		},
		"the session is deleted": func(w *workspaceReservations, first *v1alpha1.AgenticSession) {
			w.forget(client.ObjectKeyFromObject(first))
		},
		"another session has its name": func(w *workspaceReservations, _ *v1alpha1.AgenticSession) {
			w.releaseUnused(newSessionInWorkspace("first", "9"))
		},
	} {
		t.Run(title, func(t *testing.T) {
			w := newWorkspaceReservations()
			first, second, elsewhere := newSessionInWorkspace("first", "1"), newSessionInWorkspace("second", "2"), newSessionInWorkspace("third", "3")
			elsewhere.Status.Workspace.ClaimRef.Name = "own"
			for range 2 {
				require.True(t, w.reserve(first), "the first session cannot reserve the workspace")
			}
			require.True(t, w.reserve(elsewhere) && !w.reserve(second), "the workspace of another session is reserved, or the one of the first is not")
			got, _ := w.otherUser(second, "shared")
			require.True(t, got == "first", "the second session waits for %q", got)
			got, _ = w.otherUser(first, "shared")
			require.True(t, got == "", "the first session waits for %q", got)
			release(w, first)
			require.True(t, w.reserve(second), "the workspace is still reserved")
		})
	}
}

// recordingQueue records what is added.
type recordingQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]

	now   int
	later []time.Duration
}

func (q *recordingQueue) Add(reconcile.Request) { q.now++ }

func (q *recordingQueue) AddAfter(_ reconcile.Request, delay time.Duration) {
	q.later = append(q.later, delay)
}

func newTestLease(cost string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: "fix", Namespace: "ns", Labels: map[string]string{agenticsession.LabelSession: "fix", agenticsession.LabelSessionUID: "1"},
		Annotations: map[string]string{agenticsession.AnnotationCost: cost},
	}}
}

func TestCostIsReconciledAtOnceOnlyIfItReachesTheLimit(t *testing.T) {
	r, queue := newRenewals(testingclock.NewFakePassiveClock(time.Unix(0, 0))), &recordingQueue{}
	s := newTestSession("1")
	s.Namespace, s.Name, s.Spec.Limits.MaxCostUSD = "ns", "fix", new(v1alpha1.Number("2"))
	s.Status.TotalCostUSD, s.Status.Attempt.CostUSD = new(v1alpha1.Number("1.5")), new(v1alpha1.Number("0.5"))
	r.setRemainingCost(&agenticsession.Observation{Session: s})
	before := newTestLease("")
	write := func(cost string) (now, later int) {
		after := newTestLease(cost)
		r.eventHandler().Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, queue)
		before = after
		return queue.now, len(queue.later)
	}
	for i, step := range []struct {
		cost       string
		now, later int
	}{
		{"fix-r1-a1=0.9", 0, 1},
		{"fix-r1-a1=0.9", 0, 1},
		{"fix-r1-a1=0.5", 0, 1}, // the highest one counts
		{"fix-r1-a1=0.99", 0, 2},
		{"fix-r1-a1=1", 1, 2},
		{"fix-r1-a1=1", 1, 2},
		{"fix-r1-a1=1.1", 2, 2},
	} {
		now, later := write(step.cost)
		require.True(t, now == step.now && later == step.later, "step %d, %s: %d now and %d later", i, step.cost, now, later)
	}
	require.Equal(t, "1.1", r.newest(newTestLease("fix-r1-a1=0.1")).cost.USD)
}

func TestAddedCostIsCountedOnce(t *testing.T) {
	s := newTestSession("1")
	s.Namespace, s.Spec.Runner = "counted", "default"
	status := func(total v1alpha1.Number) *v1alpha1.AgenticSessionStatus {
		return &v1alpha1.AgenticSessionStatus{TotalCostUSD: &total, Attempt: v1alpha1.SessionAttempt{JobAttempt: v1alpha1.JobAttempt{JobUID: "job"}}}
	}
	before := &v1alpha1.AgenticSessionStatus{}
	for _, after := range []*v1alpha1.AgenticSessionStatus{status("0.5"), status("0.5"), status("2"), status("2.25")} {
		s.Status = *after
		countTransition(s, before, time.Time{})
		before = after
	}
	runner := &v1alpha1.SessionRunner{ObjectMeta: metav1.ObjectMeta{Namespace: "counted", Name: "default"}}
	require.Equal(t, 2.25, testutil.ToFloat64(costTotal.Of(runner)))
}
