package validation

import (
	"context"
	"encoding/json"
	goruntime "runtime"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

func agenticSession() *v1alpha1.AgenticSession {
	s := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Name: "fix", Namespace: "ns"}}
	s.Spec.Prompt, s.Spec.Runner = "do it", "default"
	s.Spec.UserContext = &v1alpha1.UserContext{UserID: "ann"}
	return s
}

func validatorWithObjects(t *testing.T, objects ...client.Object) *specValidator[*v1alpha1.AgenticSession] {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	return agenticSessionValidator(c)
}

func byUser(t *testing.T, user authenticationv1.UserInfo) context.Context {
	t.Helper()
	return admission.NewContextWithRequest(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{UserInfo: user}})
}

// A session that the SessionRunner does not allow causes only a warning, because the SessionRunner may
// change before the session starts.
func TestAgenticSessionWarnings(t *testing.T) {
	runner := &v1alpha1.SessionRunner{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "ns"}}
	runner.Spec.Image = "runner:1"
	other := agenticSession()
	other.Spec.Image = "evil:1"
	for title, row := range map[string]struct {
		v    *specValidator[*v1alpha1.AgenticSession]
		s    *v1alpha1.AgenticSession
		want string
	}{
		"an image that is not allowed": {validatorWithObjects(t, runner), other, "spec.image: "},
		"no SessionRunner":             {validatorWithObjects(t), agenticSession(), "spec.runner: "},
		"no warning":                   {validatorWithObjects(t, runner), agenticSession(), ""},
	} {
		t.Run(title, func(t *testing.T) {
			warnings, err := row.v.ValidateCreate(t.Context(), row.s)
			wantFields(t, err, nil)
			if got := strings.Join(warnings, "; "); !strings.HasPrefix(got, row.want) || (row.want == "") != (got == "") {
				t.Errorf("warnings %q, want %q", got, row.want)
			}
		})
	}
	running := agenticSession()
	running.Status.Run = 1
	rerun := running.DeepCopy()
	rerun.Spec.Rerun = &v1alpha1.Rerun{ID: "2"}
	warnings, _ := validatorWithObjects(t, runner).ValidateUpdate(byUser(t, authenticationv1.UserInfo{Username: "ann"}), running, rerun)
	require.True(t, len(warnings) == 1 && strings.HasPrefix(warnings[0], "spec.rerun: "), "warnings %q", warnings)
}

// The API server validates a session after this webhook, which must not fail on any shape of it.
func TestSessionOfAnyShapeRecordsItsCreator(t *testing.T) {
	const plain, bobs, ann, bob = `{"spec":{"prompt":"a"}}`, `{"spec":{"userContext":{"userID":"bob"}}}`, `{"userID":"ann"}`, `{"userID":"bob"}`
	for title, row := range map[string]struct{ before, after, want string }{ // before is empty if ann creates the session
		"a new session without a user":                       {"", plain, ann},
		"a new session that claims another user":             {"", bobs, ann},
		"a new session that claims to be deleted":            {"", `{"metadata":{"deletionTimestamp":"2027-01-01T00:00:00Z"},` + bobs[1:], ann},
		"a new session without a spec":                       {"", `{"metadata":{"name":"fix"}}`, ""},
		"a spec that is null":                                {"", `{"spec":null}`, ""},
		"a spec that is a list":                              {"", `{"spec":[]}`, ""},
		"a userContext that is a list":                       {"", `{"spec":{"userContext":[]}}`, ann},
		"a name that is a number":                            {"", `{"spec":{"userContext":{"userID":1}}}`, ann},
		"a field that differs in case":                       {"", `{"spec":{"UserContext":{"userID":"bob"}}}`, ann},
		"an update by another user keeps the creator":        {bobs, plain, bob},
		"an update with a user is left to the API server":    {bobs, `{"spec":{"userContext":{"userID":"ann"}}}`, ""},
		"an update of a session created without the webhook": {plain, plain, ""},
	} {
		t.Run(title, func(t *testing.T) {
			request := admissionv1.AdmissionRequest{
				Operation: admissionv1.Create, UserInfo: authenticationv1.UserInfo{Username: "ann"}, Object: runtime.RawExtension{Raw: []byte(row.after)},
			}
			if row.before != "" {
				request.Operation, request.OldObject.Raw = admissionv1.Update, []byte(row.before)
			}
			response := sessionCreatorHandler{}.Handle(t.Context(), admission.Request{AdmissionRequest: request})
			require.True(t, response.Allowed, "%+v", response.Result)
			recorded := ""
			for _, patch := range response.Patches {
				value, err := json.Marshal(patch.Value)
				require.NoError(t, err)
				require.Equal(t, "/spec/userContext", patch.Path)
				recorded += string(value)
			}
			require.Equal(t, row.want, recorded)
		})
	}
}

// A session has many fields, of which the webhook reads one.
func TestRecordingTheCreatorDoesNotDecodeTheWholeSession(t *testing.T) {
	const sessionBytes = 3 << 20
	object := []byte(`{"spec":{"items":[` + strings.Repeat(`{},`, sessionBytes/3) + `{}]}}`)
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: object},
	}}
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	if response := (sessionCreatorHandler{}).Handle(t.Context(), request); !response.Allowed {
		t.Fatalf("%+v", response)
	}
	goruntime.ReadMemStats(&after)
	require.True(t, after.TotalAlloc-before.TotalAlloc <= 3*sessionBytes, "%d bytes allocated", after.TotalAlloc-before.TotalAlloc)
}
