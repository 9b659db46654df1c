package integration

import (
	"encoding/json"
	"reflect"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
	"github.com/yardmaster/yardmaster/test/testenv"
)

const manifestOfTwoSteps = `
apiVersion: yardmaster.dev/v1alpha1
kind: SequentialJob
metadata: {name: applied}
spec:
  suspend: true
  containers:
  - name: build
    image: registry.example/build:1
    step: {outputs: true}
  - name: test
    image: registry.example/test:1
    step: {podTemplate: {spec: {nodeSelector: {pool: gpu}}}}
`

func TestStepsAreStoredAsApplied(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	applied := testenv.Decode(t, manifestOfTwoSteps)[0]
	applied.SetNamespace(ns)
	stored := applied.DeepCopy()
	mustCreate(t, stored)
	want, _, _ := unstructured.NestedSlice(applied.Object, "spec", "containers")
	got, _, _ := unstructured.NestedSlice(stored.Object, "spec", "containers")
	for i := range got {
		step := got[i].(map[string]any)
		delete(step, "resources") // of the generated schema: an empty object
		require.True(t, reflect.DeepEqual(step, want[i]), "step %d is stored as %v, applied was %v", i, step, want[i])
	}
}

// TestOnlyApproversApproveInTheirOwnName crosses users with ways to set, change, copy and remove an approval.
func TestOnlyApproversApproveInTheirOwnName(t *testing.T) {
	t.Parallel()
	waitForAdmissionPolicies(t)
	s := createSequence(t, testbuilder.SequentialJob("release", "").
		Step("deploy", testbuilder.WithStepOptions(func(o *v1alpha1.StepOptions) { o.RequireApproval = true })).Obj())
	s.waitUntil("the step to wait", func(sj *v1alpha1.SequentialJob) bool { return sj.Status.Reason == v1alpha1.ReasonApprovalRequired })
	edit := []string{"yardmaster-session-view", "yardmaster-session-edit", "yardmaster-sequentialjob-view", "yardmaster-sequentialjob-edit"}
	editor := clientWithRoles(t, s.sj.Namespace, "editor", edit...)
	approver := clientWithRoles(t, s.sj.Namespace, "approver", append(edit, "yardmaster-sequentialjob-approve")...)
	approvalBy := func(user string) string {
		copied := s.sj.DeepCopy()
		approval := sequentialjob.Approval{SequenceApproval: *s.sj.Status.Approval, By: user}
		require.NoError(t, approval.Write(copied))
		raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": copied.Annotations}})
		require.NoError(t, err)
		return string(raw)
	}
	poll.Until(t, "the policy about approvals to apply", func() bool {
		return apierrors.IsForbidden(s.patchAs(editor, approvalBy("editor"), client.DryRunAll))
	})
	for name, test := range map[string]struct {
		client  client.Client
		body    string
		allowed bool
	}{
		"by an approver":                    {approver, approvalBy("approver"), true},
		"by an approver for another":        {approver, approvalBy("editor"), false},
		"by an approver for nobody":         {approver, approvalBy(""), false},
		"by an editor":                      {editor, approvalBy("editor"), false},
		"by an editor as the approver":      {editor, approvalBy("approver"), false},
		"only the name":                     {editor, `{"metadata": {"annotations": {"yardmaster.dev/approved-by": "approver"}}}`, false},
		"only the content":                  {editor, `{"metadata": {"annotations": {"yardmaster.dev/approval": "{}"}}}`, false},
		"another annotation":                {editor, `{"metadata": {"annotations": {"example.com/a": "b"}}}`, true},
		"the status through the main path":  {editor, `{"status": {"steps": [{"name": "deploy", "phase": "Succeeded"}]}}`, true}, // which ignores it
		"a change of the spec by an editor": {editor, `{"spec": {"containers": [{"name": "deploy", "image": "other", "step": {"requireApproval": true}}]}}`, true},
	} {
		if err := s.patchAs(test.client, test.body, client.DryRunAll); (err == nil) != test.allowed || err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	require.Equal(t, 0, len(s.listJobs()))
	require.NoError(t, s.patchAs(approver, approvalBy("approver")))
	s.waitForJob("deploy")
	s.waitUntil("the approval", func(*v1alpha1.SequentialJob) bool {
		return s.stepStatus("deploy").ApprovedBy == "approver"
	})

	// A restored or copied object has the approval of another one.
	copied := createSequenceIn(t, s.sj.Namespace, &v1alpha1.SequentialJob{
		ObjectMeta: metav1.ObjectMeta{Name: "copied", Annotations: s.readSequence().Annotations}, Spec: *s.sj.Spec.DeepCopy(),
	})
	copied.waitUntil("the step to wait", func(sj *v1alpha1.SequentialJob) bool { return sj.Status.Reason == v1alpha1.ReasonApprovalRequired })
	wantAllowed(t, "an editor withdraws an approval", copied.patchAs(editor, `{"metadata": {"annotations": {"yardmaster.dev/approval": null, "yardmaster.dev/approved-by": null}}}`))
	require.Equal(t, 0, len(copied.listJobs()))
}

func (s *sequenceTest) patchAs(c client.Client, body string, o ...client.PatchOption) error {
	return c.Patch(s.t.Context(), s.sj.DeepCopy(), client.RawPatch(mergePatch, []byte(body)), o...)
}

func TestArchiveThatIsInvalidIsRefused(t *testing.T) {
	t.Parallel()
	archive := func(fields string) string { return `{containers: [{name: a, image: a}], archive: {` + fields + `}}` }
	s3 := func(endpoint string) string {
		return `s3: {endpoint: "` + endpoint + `", bucket: abc, secretRef: {name: s}}, serviceAccountName: logs`
	}
	assertSpecsRefused(t, "SequentialJob", []invalidSpec{
		{"no storage", archive(`serviceAccountName: logs`), "set exactly one of claimRef and s3"},
		{"two storages", archive(`claimRef: {name: a}, ` + s3("https://a")), "set exactly one of claimRef and s3"},
		{"no ServiceAccount", archive(`claimRef: {name: a}`), "spec.archive.serviceAccountName: "},
		{"an invalid ServiceAccount", archive(`claimRef: {name: a}, serviceAccountName: Not ok`), "spec.archive.serviceAccountName: "},
		{"an invalid endpoint", archive(s3("a")), "spec.archive.s3.endpoint: "},
	})
}
