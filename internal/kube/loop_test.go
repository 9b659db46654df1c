package kube

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/yardmaster/yardmaster/test/require"
)

// scriptedKind decides on the number of answers that it has given, and logs the calls.
type scriptedKind struct {
	calls []string
	// fails is the call that fails, and failure its error.
	fails   string
	failure error
	// questions is how many answers the first decision needs, and refusals how often Act asks for another decision.
	questions, refusals int
	ignores             bool
	// needsFresh is the answer of Loop.NeedsFresh, and wrote the version of the status that Record stores, if any.
	needsFresh bool
	wrote      string
	// outdated means that the cache has another version than the API server.
	outdated bool
}

type scriptedObservation struct{ answers, refusals int }

type testLoop = Loop[*corev1.ConfigMap, scriptedObservation, scriptedObservation]

// newTestLoop returns the loop of a kind whose cache and API server are these clients.
func newTestLoop(kind Kind[*corev1.ConfigMap, scriptedObservation, scriptedObservation], cached, live client.Client) *testLoop {
	return &testLoop{
		Clients: Clients{Client: cached, Live: live}, Kind: kind, Written: NewWriteCache[*corev1.ConfigMap](),
		New: func() *corev1.ConfigMap { return &corev1.ConfigMap{} },
	}
}

func (k *scriptedKind) call(name string) error {
	k.calls = append(k.calls, name)
	if name == k.fails {
		return k.failure
	}
	return nil
}

func (k *scriptedKind) Observe(context.Context, *corev1.ConfigMap) (*scriptedObservation, error) {
	if err := k.call("observe"); err != nil || k.ignores {
		return nil, err
	}
	return &scriptedObservation{}, nil
}

func (k *scriptedKind) Lock(context.Context, *scriptedObservation) (func(), error) {
	return func() { k.calls = append(k.calls, "unlock") }, k.call("lock")
}

func (*scriptedKind) Decide(o *scriptedObservation) scriptedObservation { return *o }

func (k *scriptedKind) Answer(_ context.Context, o, d *scriptedObservation) (bool, error) {
	if d.answers == k.questions {
		return false, nil
	}
	o.answers++
	return true, k.call("answer")
}

func (k *scriptedKind) Record(_ context.Context, object *corev1.ConfigMap, _, d *scriptedObservation) (*corev1.ConfigMap, error) {
	stored := object.DeepCopy()
	stored.Data = map[string]string{"refusals": string(rune('0' + d.refusals))}
	stored.ResourceVersion = cmp.Or(k.wrote, stored.ResourceVersion)
	return stored, k.call("record")
}

func (k *scriptedKind) Act(_ context.Context, object *corev1.ConfigMap, o, d *scriptedObservation) (bool, error) {
	if object.Data == nil {
		return false, errors.New("acts on an object that is not recorded")
	}
	o.refusals = min(d.refusals+1, k.refusals)
	return o.refusals > d.refusals, k.call("act")
}

func (k *scriptedKind) Finish(object *corev1.ConfigMap, _, d *scriptedObservation) time.Duration {
	k.calls = append(k.calls, "finish "+object.Data["refusals"])
	return time.Duration(d.refusals+1) * time.Second
}

func (k *scriptedKind) Forget(context.Context, types.NamespacedName) error { return k.call("forget") }

func (k *scriptedKind) ReportFailure(context.Context, *corev1.ConfigMap, error) {
	k.calls = append(k.calls, "report")
}

func TestALoopActsOnlyOnARecordedDecisionAndDecidesOnceMoreAfterARefusal(t *testing.T) {
	refused := errors.New("no")
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "jobs"}, "a", refused)
	stored := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}
	deleted := stored.DeepCopy()
	deleted.Finalizers, deleted.DeletionTimestamp = []string{"yardmaster.dev/x"}, new(metav1.Now())
	for name, row := range map[string]struct {
		object    *corev1.ConfigMap
		kind      scriptedKind
		want      []string
		wait      time.Duration
		wantError error
	}{
		"a decision": {object: stored, want: []string{"observe", "lock", "record", "unlock", "act", "finish 0"}, wait: time.Second},
		"a decision with questions": {
			object: stored, kind: scriptedKind{questions: 2}, wait: time.Second,
			want: []string{"observe", "lock", "answer", "answer", "record", "unlock", "act", "finish 0"},
		},
		"a refusal, on which the next pass acts": {
			object: stored, kind: scriptedKind{refusals: 2}, wait: 2 * time.Second,
			want: []string{"observe", "lock", "record", "unlock", "act", "lock", "record", "unlock", "finish 1"},
		},
		"nothing to decide":          {object: stored, kind: scriptedKind{ignores: true}, want: []string{"observe"}},
		"an object that is gone":     {want: []string{"forget"}},
		"a failure to forget":        {kind: scriptedKind{fails: "forget", failure: refused}, want: []string{"forget"}, wantError: refused},
		"a failure to observe":       {object: stored, kind: scriptedKind{fails: "observe", failure: refused}, want: []string{"observe", "report"}, wantError: refused},
		"a failure to lock":          {object: stored, kind: scriptedKind{fails: "lock", failure: refused}, want: []string{"observe", "lock", "report"}, wantError: refused},
		"a failure to answer":        {object: stored, kind: scriptedKind{questions: 2, fails: "answer", failure: refused}, want: []string{"observe", "lock", "answer", "unlock", "report"}, wantError: refused},
		"a failure to record":        {object: stored, kind: scriptedKind{fails: "record", failure: refused}, want: []string{"observe", "lock", "record", "unlock", "report"}, wantError: refused},
		"a failure to act":           {object: stored, kind: scriptedKind{fails: "act", failure: refused}, want: []string{"observe", "lock", "record", "unlock", "act", "report"}, wantError: refused},
		"a failure beside a refusal": {object: stored, kind: scriptedKind{refusals: 1, fails: "act", failure: refused}, want: []string{"observe", "lock", "record", "unlock", "act", "report"}, wantError: refused},
		"permissions that are gone with the namespace": {
			object: deleted, kind: scriptedKind{fails: "record", failure: forbidden}, want: []string{"observe", "lock", "record", "unlock"},
		},
		"a current object that was not written": {
			object: stored, kind: scriptedKind{needsFresh: true}, want: []string{"observe", "lock", "record", "unlock", "act", "finish 0"}, wait: time.Second,
		},
		"an outdated object that was not written": {
			object: stored, kind: scriptedKind{needsFresh: true, outdated: true}, want: []string{"observe", "lock", "record", "unlock", "report"}, wantError: ErrStale,
		},
		"an object that was written": {
			object: stored, kind: scriptedKind{needsFresh: true, outdated: true, wrote: "8"}, wait: time.Second,
			want: []string{"observe", "lock", "record", "unlock", "act", "finish 0"},
		},
		"an outdated object whose requests name versions": {
			object: stored, kind: scriptedKind{outdated: true}, want: []string{"observe", "lock", "record", "unlock", "act", "finish 0"}, wait: time.Second,
		},
		"permissions that are missing": {
			object: stored, kind: scriptedKind{fails: "record", failure: forbidden}, wantError: forbidden,
			want: []string{"observe", "lock", "record", "unlock", "report"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			builder := fake.NewClientBuilder()
			if row.object != nil {
				builder = builder.WithObjects(row.object.DeepCopy())
			}
			api := builder.Build() // without the namespace, as when it was deleted
			cached := api
			if row.kind.outdated {
				old := row.object.DeepCopy()
				old.Labels = map[string]string{"is": "old"}
				cached = fake.NewClientBuilder().WithObjects(old).Build()
				require.NoError(t, api.Update(t.Context(), row.object.DeepCopy()))
			}
			loop := newTestLoop(&row.kind, cached, api)
			loop.Finalizer = "yardmaster.dev/x"
			loop.NeedsFresh = func(*scriptedObservation) bool { return row.kind.needsFresh }
			result, err := loop.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(stored)})
			require.ErrorIs(t, err, row.wantError)
			require.Equal(t, row.wait, result.RequeueAfter)
			require.Equal(t, row.want, row.kind.calls)
		})
	}
}

// startingKind counts how many of its passes start a run.
type startingKind struct {
	scriptedKind

	seen *[]int64
}

func (k *startingKind) Act(context.Context, *corev1.ConfigMap, *scriptedObservation, *scriptedObservation) (bool, error) {
	*k.seen = append(*k.seen, dueRuns.Load())
	return false, k.failure
}

func TestNewRunsWaitOnlyWhileManyRunsAreDue(t *testing.T) {
	now := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	schedule := []metav1.OwnerReference{{Kind: "Schedule", Name: "s", Controller: new(true)}}
	for title, row := range map[string]struct {
		due      int64
		age      time.Duration
		owners   []metav1.OwnerReference
		observed int64
		wait     bool
	}{
		"a new run among many that are due":                {due: manyDueRuns + 1, owners: schedule, wait: true},
		"a new run with the default of its status":         {due: manyDueRuns + 1, owners: schedule, observed: -1, wait: true},
		"a few runs are due":                               {due: manyDueRuns, owners: schedule},
		"a run after its first pass":                       {due: manyDueRuns + 1, owners: schedule, observed: 1},
		"a run that waited for long":                       {due: manyDueRuns + 1, owners: schedule, age: maxRunWait},
		"the API server's clock is ahead by an hour":       {due: manyDueRuns + 1, owners: schedule, age: -time.Hour},
		"an object that a user created":                    {due: manyDueRuns + 1},
		"a run that a Schedule owns, but does not control": {due: manyDueRuns + 1, owners: []metav1.OwnerReference{{Kind: "Schedule", Name: "s"}}},
	} {
		t.Run(title, func(t *testing.T) {
			dueRuns.Store(row.due)
			defer dueRuns.Store(0)
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "a", OwnerReferences: row.owners, CreationTimestamp: metav1.NewTime(now.Add(-row.age)),
			}}
			api := fake.NewClientBuilder().WithObjects(object).Build()
			kind := &scriptedKind{}
			loop := newTestLoop(kind, api, api)
			loop.Clock = clocktesting.NewFakePassiveClock(now)
			loop.IsNew = func(*corev1.ConfigMap) bool { return NeverObserved(row.observed) }
			result, err := loop.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(object)})
			isRight := err == nil && (len(kind.calls) == 0) == row.wait && (result.RequeueAfter == runWaitInterval) == row.wait
			require.True(t, isRight, "called %q, requeued after %s, error %v", kind.calls, result.RequeueAfter, err)
		})
	}
}

func TestARunIsDueUntilItsPassEnds(t *testing.T) {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}
	api := fake.NewClientBuilder().WithObjects(object).Build()
	for title, row := range map[string]struct {
		isDue   bool
		failure error
		want    int64
	}{
		"a run that is due":             {isDue: true, want: 1},
		"a run that cannot be created":  {isDue: true, failure: errors.New("no"), want: 1},
		"a decision that starts no run": {want: 0},
	} {
		t.Run(title, func(t *testing.T) {
			var seen []int64
			loop := newTestLoop(&startingKind{scriptedKind{failure: row.failure}, &seen}, api, api)
			loop.IsDue = func(*scriptedObservation) bool { return row.isDue }
			_, err := loop.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(object)})
			require.ErrorIs(t, err, row.failure)
			require.Equal(t, []int64{row.want, 0}, append(seen, dueRuns.Load())) // during the pass, and after it
		})
	}
}

// observingKind remembers the data that it observed.
type observingKind struct {
	scriptedKind

	observed map[string]string
}

func (k *observingKind) Observe(_ context.Context, object *corev1.ConfigMap) (*scriptedObservation, error) {
	k.observed = object.Data
	return nil, nil //nolint:nilnil // nothing to decide
}

func TestAnObjectThatTheCacheHasTrimmedIsReadFromTheAPIServer(t *testing.T) {
	whole := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}, Data: map[string]string{"large": "text"}}
	trimmed := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", Annotations: map[string]string{annotationTrimmed: ""}}}
	for title, row := range map[string]struct {
		live, cached *corev1.ConfigMap
		failure      error
		want         string
	}{
		"trimmed":                        {whole, trimmed, nil, "text"},
		"whole":                          {nil, whole, nil, "text"},
		"trimmed, and deleted meanwhile": {nil, trimmed, nil, ""},
		"trimmed, and the API server does not answer": {whole, trimmed, errors.New("no answer"), ""},
	} {
		t.Run(title, func(t *testing.T) {
			api := fake.NewClientBuilder()
			if row.live != nil {
				api = api.WithObjects(row.live.DeepCopy())
			}
			if row.failure != nil {
				api = api.WithInterceptorFuncs(interceptor.Funcs{
					Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
						return row.failure
					},
				})
			}
			kind := &observingKind{}
			loop := newTestLoop(kind, fake.NewClientBuilder().WithObjects(row.cached.DeepCopy()).Build(), api.Build())
			for range cap(largePasses) {
				largePasses <- struct{}{}
			}
			request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(row.cached)}
			result, err := loop.Reconcile(t.Context(), request)
			require.True(t, err == nil && (result.RequeueAfter > 0) == isTrimmed(row.cached), "during other large passes: %+v, %v", result, err)
			for range cap(largePasses) {
				<-largePasses
			}
			_, err = loop.Reconcile(t.Context(), request)
			require.ErrorIs(t, err, row.failure)
			require.True(t, len(kind.calls) == 0, "called %q, which would write a trimmed object", kind.calls)
			require.Equal(t, row.want, kind.observed["large"])
		})
	}
}
