package integration

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// policyTestEnv is a namespace with Policies.
type policyTestEnv struct {
	t  *testing.T
	ns string
}

func (w *policyTestEnv) createObject(kind, name, labels, spec string) {
	w.t.Helper()
	object := newManifest(w.t, kind, w.ns, name, spec)
	object.SetLabels(map[string]string{"team": labels})
	mustCreate(w.t, object)
}

func (w *policyTestEnv) getPolicy(name string) *v1alpha1.Policy {
	w.t.Helper()
	p := &v1alpha1.Policy{}
	mustGet(w.t, client.ObjectKey{Namespace: w.ns, Name: name}, p)
	return p
}

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

// The API server rejects an event whose note has more than 1,024 bytes.
func TestAnEventWithALongMessageIsTruncated(t *testing.T) {
	t.Parallel()
	w := &policyTestEnv{t, namespaceWithoutWebhook(t)}
	w.createObject("Policy", "team", "", "{selector: {matchExpressions: [{key: team, operator: "+strings.Repeat("ä", 2500)+"}]}}")
	is := w.waitForReady("team", metav1.ConditionFalse, v1alpha1.ReasonSelectorInvalid)
	require.True(t, len(is.Message) >= 5000, "the message has only %d bytes", len(is.Message))
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
	require.Equal(t, 0, len(s.listJobs())+len(session.listJobs()))
	both := `{"spec":{"limits":{"allowedImages":["registry.example/*", "runner:*"]}}}`
	mustPatch(t, w.getPolicy("team"), client.RawPatch(mergePatch, []byte(both)))
	s.succeedStep("a")
	s.succeedStep("b")
	session.waitForPhase(v1alpha1.SessionCreating)
}
