package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
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
	r := &Reconciler{createdJobs: kube.NewStore[createdJob](), deletedPods: d, workspaces: newWorkspaces(kube.Clients{})}
	r.forgetUnused(s)
	require.True(t, podsOf(s) == 1, "the Pod is forgotten while its attempt is open")
	s.Status.Attempt.JobName = ""
	r.forgetUnused(s)
	require.True(t, podsOf(s) == 0, "the Pod is kept after its attempt ended")
}

func newChildren(objects ...client.Object) client.WithWatch {
	byUID := func(o client.Object) []string { return []string{o.GetLabels()[agenticsession.LabelSessionUID]} }
	return fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).
		WithIndex(&batchv1.Job{}, uidIndex, byUID).WithIndex(&corev1.Pod{}, uidIndex, byUID).Build()
}

func TestDeletionIsMeasuredUntilLastJobAndPodAreDeleted(t *testing.T) {
	metadata := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: "ns", Labels: map[string]string{agenticsession.LabelSessionUID: "1"}}
	}
	job, pod := &batchv1.Job{ObjectMeta: metadata("job")}, &corev1.Pod{ObjectMeta: metadata("pod")}
	deletionTime := time.Unix(1e9, 0)
	inForeground := new(metav1.NewTime(deletionTime.Add(-time.Minute)))
	check := func(title string, deleted *metav1.Time, existing []client.Object, want []time.Duration) {
		t.Run(title, func(t *testing.T) {
			now := testingclock.NewFakePassiveClock(deletionTime)
			children := newChildren(existing...)
			d := newDeletionTracker(children, now)
			var durations []time.Duration
			d.observeDuration = func(duration time.Duration) { durations = append(durations, duration) }
			d.sessionDeleted(t.Context(), &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{
				Name: "fix", Namespace: "ns", UID: "1", DeletionTimestamp: deleted,
			}})
			for i, object := range existing {
				now.SetTime(deletionTime.Add(time.Duration(i+1) * time.Second))
				require.NoError(t, children.Delete(t.Context(), object.DeepCopyObject().(client.Object)))
				d.childDeleted(t.Context(), object)
			}
			require.True(t, slices.Equal(durations, want) && len(d.deletedSince) == 0, "measured %v, want %v; tracked: %v", durations, want, d.deletedSince)
		})
	}
	check("a Job and its Pod are deleted one after the other", nil, []client.Object{job, pod}, []time.Duration{2 * time.Second})
	check("a session without a Job", nil, nil, nil)
	check("a session deleted in the foreground", inForeground, nil, []time.Duration{time.Minute})
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
	job := func() client.Object { return object(&batchv1.Job{}, "job", "AgenticSession", "1") }
	pod := func() client.Object { return object(&corev1.Pod{}, "pod", "Job", "job") }
	// changed are objects that are not stored as they are cached.
	check := func(title string, cached, changed []client.Object, want ...string) {
		t.Run(title, func(t *testing.T) {
			stored := newChildren(cached...)
			for _, object := range changed {
				require.NoError(t, stored.Update(t.Context(), object))
			}
			r := &remover{client: stored, children: staleCache{stored: newChildren(cached...)}}
			for range 2 { // twice: the second time finds what the cache still shows
				result, err := r.remove(t.Context(), deletedSession{"ns", "1"})
				require.True(t, err == nil && (result.RequeueAfter > 0) == (len(changed) > 0), "result %+v, error %v", result, err)
			}
			var left []string
			for _, o := range cached {
				if stored.Get(t.Context(), client.ObjectKeyFromObject(o), o) == nil {
					left = append(left, o.GetName())
				}
			}
			require.True(t, slices.Equal(left, want), "%v are left, want %v", left, want)
		})
	}
	check("a Job and its Pod", []client.Object{job(), pod()}, nil)
	check("a Pod whose Job is deleted already", []client.Object{pod()}, nil)
	check("objects of others with the label", []client.Object{object(&batchv1.Job{}, "job", "AgenticSession", "2"), pod()}, nil, "job", "pod")
	check("a Pod without an owner", []client.Object{object(&corev1.Pod{}, "pod", "", "")}, nil, "pod")
	check("a Job that lost its owner since it was read", []client.Object{job(), pod()}, []client.Object{object(&batchv1.Job{}, "job", "", "")}, "job", "pod")
	check("a session without objects", nil, nil)
}

func newSessionInWorkspace(name string, uid types.UID) *v1alpha1.AgenticSession {
	s := newTestSession(uid)
	s.Name, s.Status.Workspace.ClaimRef.Name = name, "shared"
	return s
}

func TestOnlyOneSessionReservesAWorkspaceUntilItIsReleased(t *testing.T) {
	for title, release := range map[string]func(w *workspaces, first *v1alpha1.AgenticSession){
		"the session ended": func(w *workspaces, first *v1alpha1.AgenticSession) {
			first.Status.Attempt.JobName = ""
			w.releaseUnused(first)
		},
		"the session is deleted": func(w *workspaces, first *v1alpha1.AgenticSession) {
			w.forget(client.ObjectKeyFromObject(first))
		},
		"another session has its name": func(w *workspaces, _ *v1alpha1.AgenticSession) {
			w.releaseUnused(newSessionInWorkspace("first", "9"))
		},
	} {
		t.Run(title, func(t *testing.T) {
			w := newWorkspaces(kube.Clients{})
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
	write := func(cost string, now, later int) {
		t.Helper()
		after := newTestLease(cost)
		r.eventHandler().Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, queue)
		before = after
		require.True(t, queue.now == now && len(queue.later) == later, "%d now and %d later", queue.now, len(queue.later))
	}
	write("fix-r1-a1=0.9", 0, 1)
	write("fix-r1-a1=0.9", 0, 1)
	write("fix-r1-a1=0.5", 0, 1) // the highest one counts
	write("fix-r1-a1=0.99", 0, 2)
	write("fix-r1-a1=1", 1, 2)
	write("fix-r1-a1=1", 1, 2)
	write("fix-r1-a1=1.1", 2, 2)
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

func TestChildObjectsAreCreatedBeforeTheyAreRead(t *testing.T) {
	s := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Name: "fix", Namespace: "ns", UID: "1"}}
	metadata := func(uid string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: "fix-session", Namespace: "ns", Labels: map[string]string{agenticsession.LabelSessionUID: uid}}
	}
	account := func(uid string) *corev1.ServiceAccount {
		return &corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: metadata(uid)}
	}
	policy := &networkingv1.NetworkPolicy{TypeMeta: metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}, ObjectMeta: metadata("1")}
	check := func(title string, attempt int32, existing []client.Object, quotaExceeded bool, object decision.Object, want string, wantRefusal decision.Class) {
		t.Run(title, func(t *testing.T) {
			var requests []string
			c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(existing...).WithInterceptorFuncs(interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
					if requests = append(requests, "create"); quotaExceeded {
						return apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts"}, object.GetName(), errors.New("exceeded quota: all"))
					}
					return c.Create(ctx, object, options...)
				},
				Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
					requests = append(requests, "apply")
					return nil
				},
			}).Build()
			live := interceptor.NewClient(c, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
					requests = append(requests, "get")
					return c.Get(ctx, key, object, options...)
				},
			})
			r := &Reconciler{Clients: kube.Clients{Client: c, Live: live}, options: Options{Children: emptyCache{}}}
			now := s.DeepCopy()
			now.Status.Attempt.Attempt = attempt
			refusal, err := r.applyObject(t.Context(), now, object)
			require.NoError(t, err)
			require.Equal(t, want, strings.Join(requests, " "))
			require.Equal(t, wantRefusal, ptr.Deref(refusal, decision.Refusal{}).Class)
		})
	}
	check("no object exists", 1, nil, false, account("1"), "create", "")
	check("an operator that crashed created it", 1, []client.Object{account("1")}, false, account("1"), "create get apply", "")
	check("a quota is exceeded and the object exists", 1, []client.Object{account("1")}, true, account("1"), "create get apply", "")
	check("a quota is exceeded", 1, nil, true, account("1"), "create get", decision.QuotaExceeded)
	check("another owner has the name", 1, []client.Object{account("2")}, false, account("1"), "create get", decision.AlreadyExists)
	check("a later attempt reads first", 2, []client.Object{account("1")}, false, account("1"), "get apply", "")
	check("an object whose fields may be removed is read first", 1, nil, false, policy, "get apply", "")
}

// emptyCache is a cache without objects.
type emptyCache struct{ cache.Cache }

func (emptyCache) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func TestKnownAddressesOfTheAPIServerRemainUntilOthersAreRead(t *testing.T) {
	var failure error
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: apiServerName.Namespace, Name: apiServerName.Name},
		Spec:       corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.1"}, Ports: []corev1.ServicePort{{Port: 443}}},
	}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: service.ObjectMeta}
	c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(service, slice).Build()
	unreliable := interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if failure != nil {
				return failure
			}
			return c.Get(ctx, key, object, options...)
		},
	})
	server := newAPIServer(unreliable)
	refresh := func(wantChanged, wantErr bool, want string) {
		t.Helper()
		changed, err := server.refresh(t.Context())
		rules, _ := server.rules(t.Context())
		require.True(t, changed == wantChanged && (err != nil) == wantErr && len(rules) == 1 && rules[0].To[0].IPBlock.CIDR == want,
			"changed: %t, error %v, rules %v; want %t, error: %t, %s", changed, err, rules, wantChanged, wantErr, want)
	}

	failure = apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	rules, err := newAPIServer(unreliable).rules(t.Context())
	require.True(t, err == nil && len(rules) == 0, "without the permission to read them, a session waits: %v, %v", rules, err)
	failure = errors.New("unreachable")
	_, err = server.rules(t.Context())
	require.True(t, err != nil, "a session starts without the addresses although the API server has only failed to return them")
	failure = nil
	refresh(false, false, "10.96.0.1/32")
	for _, failure = range []error{errors.New("unreachable"), apierrors.NewForbidden(schema.GroupResource{}, "", nil)} {
		refresh(false, true, "10.96.0.1/32")
	}
	failure = nil
	service.Spec.ClusterIPs = []string{"10.96.0.2"}
	require.NoError(t, c.Update(t.Context(), service))
	refresh(true, false, "10.96.0.2/32")
	refresh(false, false, "10.96.0.2/32")
}

func TestACachedJobHasOnlyThePortOfItsRunner(t *testing.T) {
	ports := []corev1.ContainerPort{{Name: "metrics", ContainerPort: 1}, {Name: "session", ContainerPort: 9090}}
	job := &batchv1.Job{}
	job.Spec.Template.Spec.Containers = []corev1.Container{{Name: "runner", Image: "a", Ports: ports}}
	trimmed, err := trimJob(job)
	require.NoError(t, err)
	require.Equal(t, []corev1.Container{{Ports: ports[1:]}}, trimmed.(*batchv1.Job).Spec.Template.Spec.Containers)
}

func TestALargeSessionIsCachedWithoutItsInputs(t *testing.T) {
	text := strings.Repeat("x", kube.LargeBytes)
	newSession := func() *v1alpha1.AgenticSession {
		s := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "fix"}}
		s.Spec.Runner, s.Spec.UserContext, s.Spec.Workspace = "default", &v1alpha1.UserContext{UserID: "ann"}, &v1alpha1.WorkspaceClaim{}
		s.Status.Phase = v1alpha1.SessionRunning
		return s
	}
	type spec = v1alpha1.AgenticSessionSpec
	for title, enlarge := range map[string]func(s *spec){
		"prompt": func(s *spec) { s.Prompt = text + "x" },
		"variables": func(s *spec) {
			s.EnvironmentVariables = map[string]v1alpha1.EnvironmentValue{"A": v1alpha1.EnvironmentValue(text)}
		},
		"repos": func(s *spec) {
			s.Repos = []v1alpha1.SessionRepo{{GitSource: v1alpha1.GitSource{URL: v1alpha1.GitURL(text), Branch: "main"}}}
		},
		"tool servers": func(s *spec) {
			s.Agent.MCPServers.Custom = map[string]apiextensionsv1.JSON{"a": {Raw: []byte(`"` + text + `"`)}}
		},
		"disabled tool servers": func(s *spec) { s.Agent.MCPServers.Disabled = []string{text, "a"} },
	} {
		t.Run(title, func(t *testing.T) {
			s := newSession()
			enlarge(&s.Spec)
			trimmed, err := TrimSession(s)
			require.NoError(t, err)
			got := trimmed.(*v1alpha1.AgenticSession)
			diff := cmp.Diff(newSession().Spec, got.Spec)
			require.True(t, diff == "" && got.Status.Phase == v1alpha1.SessionRunning, "phase %s, spec (-want, +got):\n%s", got.Status.Phase, diff)
		})
	}
}
