package integration

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// town is a namespace with Policies.
type town struct {
	t  *testing.T
	ns string
}

func (w *town) create(kind, name, labels, spec string) {
	w.t.Helper()
	object := newManifest(w.t, kind, name, spec)
	object.SetNamespace(w.ns)
	object.SetLabels(map[string]string{"team": labels})
	if err := cluster.Create(w.t.Context(), object); err != nil {
		w.t.Fatal(err)
	}
}

func (w *town) policy(name string) *v1alpha1.Policy {
	w.t.Helper()
	p := &v1alpha1.Policy{}
	if err := cluster.Get(w.t.Context(), client.ObjectKey{Namespace: w.ns, Name: name}, p); err != nil {
		w.t.Fatal(err)
	}
	return p
}

// counts waits until the Policy counts so many.
func (w *town) counts(name string, queues, pools, replicas int32) {
	w.t.Helper()
	eventually(w.t, name+" to count", func() bool {
		s := w.policy(name).Status
		return s.Queues == queues && s.WorkerPools == pools && s.Replicas == replicas
	})
}

// is waits until the Policy is ready, or not, for that reason.
func (w *town) is(name string, status metav1.ConditionStatus, reason string) *metav1.Condition {
	w.t.Helper()
	var found *metav1.Condition
	eventually(w.t, name+" to be Ready="+string(status)+" "+reason, func() bool {
		p := w.policy(name)
		found = meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
		return found != nil && found.Status == status && found.Reason == reason && found.ObservedGeneration == p.Generation
	})
	return found
}

// has says in a pool's status how many workers it has.
func (w *town) has(name string, replicas, busy int32) {
	w.t.Helper()
	wp := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
	if err := cluster.Get(w.t.Context(), client.ObjectKeyFromObject(wp), wp); err != nil {
		w.t.Fatal(err)
	}
	before := wp.DeepCopy()
	wp.Status.Replicas, wp.Status.Busy = replicas, &busy
	if err := cluster.Status().Patch(w.t.Context(), wp, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}

const someQueue = "{broker: {engine: NATS, urlSecretRef: {name: nowhere}}}"

func TestAPolicyTellsWhomItSelects(t *testing.T) {
	t.Parallel()
	w := &town{t, namespace(t)}
	w.create("Policy", "team", "", "{selector: {matchLabels: {team: mail}}, limits: {maxReplicasTotal: 10}}")
	w.create("Policy", "all", "", "{}")
	w.is("team", metav1.ConditionTrue, v1alpha1.ReasonNothingSelected)
	w.create("Queue", "letters", "mail", someQueue)
	w.create("Queue", "pages", "web", someQueue)
	w.create("WorkerPool", "postmen", "mail", "{image: 'worker:1', queues: [{name: letters}], replicas: 0}")
	w.create("WorkerPool", "clerks", "web", "{image: 'worker:1', queues: [{name: pages}], replicas: 0}")
	w.has("postmen", 3, 0)
	w.has("clerks", 2, 0)
	w.counts("team", 1, 1, 3)
	w.counts("all", 2, 2, 5)
	is := w.is("team", metav1.ConditionTrue, v1alpha1.ReasonReady)
	if want := "selects 1 Queue and 1 WorkerPool with 3 replicas of the 10 of maxReplicasTotal"; is.Message != want {
		t.Errorf("it says %q, want %q", is.Message, want)
	}

	pages := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "pages"}}
	if err := cluster.Patch(t.Context(), pages, client.RawPatch(mergePatch, []byte(`{"metadata":{"labels":{"team":"mail"}}}`))); err != nil {
		t.Fatal(err)
	}
	w.counts("team", 2, 1, 3)
	clerks := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "clerks"}}
	if err := cluster.Delete(t.Context(), clerks); err != nil {
		t.Fatal(err)
	}
	w.counts("all", 2, 1, 3)
}

func TestAPolicyIsWrittenOnlyWhenItCountsOtherwise(t *testing.T) {
	t.Parallel()
	w := &town{t, namespace(t)}
	var writes atomic.Int32
	faults.set(t, w.ns, func(r *http.Request) fault {
		if isWrite(r) && strings.HasSuffix(r.URL.Path, "/policies/all/status") {
			writes.Add(1)
		}
		return delivered
	})
	w.create("WorkerPool", "postmen", "mail", "{image: 'worker:1', queues: [{name: letters}], replicas: 0}")
	w.has("postmen", 1, 0)
	w.create("Policy", "all", "", "{}")
	w.counts("all", 0, 1, 1)
	begun := writes.Load()
	for busy := range int32(20) {
		w.has("postmen", 1, busy)
	}
	w.has("postmen", 2, 0)
	w.counts("all", 0, 1, 2)
	if got := writes.Load() - begun; got != 1 {
		t.Errorf("it was written %d times, want once", got)
	}
}

func TestAPolicyNamesTheSecretThatItsBrokerMisses(t *testing.T) {
	t.Parallel()
	y := &queueEnv{t: t, ns: namespace(t)}
	w := &town{t, y.ns}
	w.create("Policy", "team", "", "{defaults: {broker: {engine: NATS, urlSecretRef: {name: nats}}}}")
	is := w.is("team", metav1.ConditionFalse, v1alpha1.ReasonSecretNotFound)
	if want := `spec.defaults.broker: Secret "nats" not found`; is.Message != want {
		t.Errorf("it says %q, want %q", is.Message, want)
	}
	eventually(t, "an event", func() bool { return y.hasEvent("team", v1alpha1.ReasonSecretNotFound) })
	y.createSecret("nats", "url", "nats://127.0.0.1:4222")
	w.is("team", metav1.ConditionTrue, v1alpha1.ReasonNothingSelected)
}

// The webhook refuses such a selector, unless it is off.
func TestAPolicyWhoseSelectorCannotBeReadSaysSo(t *testing.T) {
	t.Parallel()
	w := &town{t, namespaceWithoutWebhook(t)}
	w.create("Policy", "team", "", "{selector: {matchExpressions: [{key: team, operator: Like}]}}")
	is := w.is("team", metav1.ConditionFalse, v1alpha1.ReasonSelectorInvalid)
	if !strings.Contains(is.Message, "spec.selector") {
		t.Errorf("it says %q", is.Message)
	}
}
