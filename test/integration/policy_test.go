package integration

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// policyTestEnv is a namespace with Policies.
type policyTestEnv struct {
	t  *testing.T
	ns string
}

func (w *policyTestEnv) createObject(kind, name, labels, spec string) {
	w.t.Helper()
	object := newManifest(w.t, kind, name, spec)
	object.SetNamespace(w.ns)
	object.SetLabels(map[string]string{"team": labels})
	mustCreate(w.t, object)
}

func (w *policyTestEnv) getPolicy(name string) *v1alpha1.Policy {
	w.t.Helper()
	p := &v1alpha1.Policy{}
	mustGet(w.t, client.ObjectKey{Namespace: w.ns, Name: name}, p)
	return p
}

// waitForCounts waits until the Policy's status has these counts.
func (w *policyTestEnv) waitForCounts(name string, queues, pools, replicas int32) {
	w.t.Helper()
	poll.Until(w.t, name+" to have the counts", func() bool {
		s := w.getPolicy(name).Status
		return s.Queues == queues && s.WorkerPools == pools && s.Replicas == replicas
	})
}

// waitForReady waits until the condition Ready has that status and reason.
func (w *policyTestEnv) waitForReady(name string, status metav1.ConditionStatus, reason string) *metav1.Condition {
	w.t.Helper()
	var found *metav1.Condition
	poll.Until(w.t, name+" to be Ready="+string(status)+" "+reason, func() bool {
		p := w.getPolicy(name)
		found = meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
		return found != nil && found.Status == status && found.Reason == reason && found.ObservedGeneration == p.Generation
	})
	return found
}

// setPoolReplicas sets the numbers of workers in a pool's status.
func (w *policyTestEnv) setPoolReplicas(name string, replicas, busy int32) {
	w.t.Helper()
	wp := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
	mustGet(w.t, client.ObjectKeyFromObject(wp), wp)
	before := wp.DeepCopy()
	wp.Status.Replicas, wp.Status.Busy = replicas, &busy
	if err := cluster.Status().Patch(w.t.Context(), wp, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *policyTestEnv) patchPolicy(name, patch string) {
	w.t.Helper()
	mustPatch(w.t, w.getPolicy(name), client.RawPatch(mergePatch, []byte(patch)))
}

const queueSpec = "{broker: {engine: NATS, urlSecretRef: {name: missing}}}"

func TestPolicyReportsSelectedQueuesAndPools(t *testing.T) {
	t.Parallel()
	w := &policyTestEnv{t, namespace(t)}
	w.createObject("Policy", "team", "", "{selector: {matchLabels: {team: mail}}, limits: {maxReplicasTotal: 10}}")
	w.createObject("Policy", "all", "", "{}")
	w.waitForReady("team", metav1.ConditionTrue, v1alpha1.ReasonNothingSelected)
	w.createObject("Queue", "letters", "mail", queueSpec)
	w.createObject("Queue", "pages", "web", queueSpec)
	w.createObject("WorkerPool", "mailers", "mail", "{image: 'worker:1', queues: [{name: letters}], replicas: 0}")
	w.createObject("WorkerPool", "renderers", "web", "{image: 'worker:1', queues: [{name: pages}], replicas: 0}")
	w.setPoolReplicas("mailers", 3, 0)
	w.setPoolReplicas("renderers", 2, 0)
	w.waitForCounts("team", 1, 1, 3)
	w.waitForCounts("all", 2, 2, 5)
	is := w.waitForReady("team", metav1.ConditionTrue, v1alpha1.ReasonReady)
	if want := "selects 1 Queue and 1 WorkerPool with 3 replicas of maxReplicasTotal 10"; is.Message != want {
		t.Errorf("the message is %q, want %q", is.Message, want)
	}

	pages := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "pages"}}
	mustPatch(t, pages, client.RawPatch(mergePatch, []byte(`{"metadata":{"labels":{"team":"mail"}}}`)))
	w.waitForCounts("team", 2, 1, 3)
	renderers := &v1alpha1.WorkerPool{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "renderers"}}
	mustDelete(t, renderers)
	w.waitForCounts("all", 2, 1, 3)
}

// The API server rejects an event whose note has more than 1,024 bytes.
func TestAnEventWithALongMessageIsTruncated(t *testing.T) {
	t.Parallel()
	w := &policyTestEnv{t, namespaceWithoutWebhook(t)}
	w.createObject("Policy", "team", "", "{selector: {matchExpressions: [{key: team, operator: "+strings.Repeat("ä", 2500)+"}]}}")
	is := w.waitForReady("team", metav1.ConditionFalse, v1alpha1.ReasonSelectorInvalid)
	if len(is.Message) < 5000 {
		t.Fatalf("the message has only %d bytes", len(is.Message))
	}
	poll.Until(t, "an event", func() bool { return findEvent(t, w.ns, "team", v1alpha1.ReasonSelectorInvalid) != nil })
	note := findEvent(t, w.ns, "team", v1alpha1.ReasonSelectorInvalid).Note
	if len(note) > 1024 || !strings.HasPrefix(note, "spec.selector: ") || !strings.HasSuffix(note, "ä…") {
		t.Errorf("the note has %d bytes: %q", len(note), note)
	}
}

func TestAPolicyDelaysWhatRunsUntilItsImagesAreAllowed(t *testing.T) {
	t.Parallel()
	w := &policyTestEnv{t, namespace(t)}
	w.createObject("Policy", "team", "", "{limits: {allowedImages: ['registry.example/good:*']}}")
	good := testbuilder.StepImage("registry.example/good:1")
	s := createSequenceIn(t, w.ns, testbuilder.SequentialJob("images", "").Step("a", good).Step("b", testbuilder.StepImage("registry.example/b:1")).Obj())
	session := createSessionIn(t, w.ns, "fix") // its image is runner:1
	s.waitUntil("the refusal", func(*v1alpha1.SequentialJob) bool {
		status, reason := s.readCondition(v1alpha1.ConditionBlocked)
		return status == metav1.ConditionTrue && reason == v1alpha1.ReasonImageNotAllowed
	})
	s.wantEvent(v1alpha1.EventPolicyViolated)
	session.waitForCondition(v1alpha1.ConditionBlocked, metav1.ConditionTrue, v1alpha1.ReasonImageNotAllowed)
	if number := len(s.listJobs()) + len(session.listJobs()); number != 0 {
		t.Errorf("%d Jobs were created", number)
	}
	w.patchPolicy("team", `{"spec":{"limits":{"allowedImages":["registry.example/*", "runner:*"]}}}`)
	s.succeedStep("a")
	s.succeedStep("b")
	session.waitForPhase(v1alpha1.SessionCreating)
}
