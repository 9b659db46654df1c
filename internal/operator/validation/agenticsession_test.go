package validation

import (
	"context"
	"encoding/json"
	goruntime "runtime"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
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

// recordedUser returns the user that a request records in a session, or nil.
func recordedUser(t *testing.T, operation admissionv1.Operation, before, given *v1alpha1.UserContext) *v1alpha1.UserContext {
	t.Helper()
	raw := func(user *v1alpha1.UserContext) []byte {
		s := agenticSession()
		s.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("AgenticSession"))
		s.Spec.UserContext = user
		text, err := json.Marshal(s)
		require.NoError(t, err)
		return text
	}
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: operation, UserInfo: authenticationv1.UserInfo{Username: "ann"},
		Object: runtime.RawExtension{Raw: raw(given)}, OldObject: runtime.RawExtension{Raw: raw(before)},
	}}
	response := sessionCreatorHandler{}.Handle(t.Context(), request)
	require.True(t, response.Allowed, "%+v", response.Result)
	for _, patch := range response.Patches {
		require.True(t, strings.HasPrefix(patch.Path, "/spec/userContext"), "unexpected change of %s", patch.Path)
	}
	operations, err := json.Marshal(response.Patches)
	require.NoError(t, err)
	after := request.Object.Raw
	if len(response.Patches) > 0 {
		patch, err := jsonpatch.DecodePatch(operations)
		require.NoError(t, err)
		if after, err = patch.Apply(after); err != nil {
			t.Fatal(err)
		}
	}
	s := &v1alpha1.AgenticSession{}
	require.NoError(t, json.Unmarshal(after, s))
	return s.Spec.UserContext
}

func TestSessionRecordsItsCreator(t *testing.T) {
	bob := &v1alpha1.UserContext{UserID: "bob"}
	for title, row := range map[string]struct {
		operation           admissionv1.Operation
		before, given, want *v1alpha1.UserContext
	}{
		"a new session without a user": {admissionv1.Create, nil, nil, &v1alpha1.UserContext{UserID: "ann"}},
		"a new session that claims another user": {
			admissionv1.Create, nil, &v1alpha1.UserContext{UserID: "root"},
			&v1alpha1.UserContext{UserID: "ann"},
		},
		"an update by another user keeps the creator":        {admissionv1.Update, bob, nil, bob},
		"an update of a session created without the webhook": {admissionv1.Update, nil, nil, nil},
	} {
		t.Run(title, func(t *testing.T) {
			require.Equal(t, row.want, recordedUser(t, row.operation, row.before, row.given))
		})
	}
}

func validatorWithObjects(t *testing.T, objects ...client.Object) *specValidator[*v1alpha1.AgenticSession] {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	return agenticSessionValidator(c)
}

// byUser returns the context of a request by this user.
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
func TestSessionOfAnyShapeIsLeftToTheAPIServer(t *testing.T) {
	for title, row := range map[string]struct {
		object      string
		wantPatches int
	}{
		"no spec":                      {`{"metadata":{"name":"fix"}}`, 0},
		"a spec that is null":          {`{"spec":null}`, 0},
		"a spec that is a list":        {`{"spec":[]}`, 0},
		"a userContext that is a list": {`{"spec":{"userContext":[]}}`, 1},
		"a name that is a number":      {`{"spec":{"userContext":{"userID":1}}}`, 1},
		"a field that differs in case": {`{"spec":{"UserContext":{"userID":"bob"}}}`, 1},
	} {
		t.Run(title, func(t *testing.T) {
			response := sessionCreatorHandler{}.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: admissionv1.Create, UserInfo: authenticationv1.UserInfo{Username: "ann"},
				Object: runtime.RawExtension{Raw: []byte(row.object)},
			}})
			require.True(t, response.Allowed && len(response.Patches) == row.wantPatches, "%+v", response)
			if len(response.Patches) == 1 {
				require.Equal[any](t, &v1alpha1.UserContext{UserID: "ann"}, response.Patches[0].Value)
			}
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
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 3*sessionBytes {
		t.Errorf("%d bytes allocated for a session of %d bytes", allocated, len(object))
	}
}
