package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testenv"
)

// creatorRow is a write by ann, and what is recorded. Both the webhook and the MutatingAdmissionPolicy
// behave like this.
type creatorRow struct {
	// before is stored first, by bob; nil if ann creates the session.
	before map[string]any
	// spec is what ann writes.
	spec map[string]any
	want *v1alpha1.UserContext
	// wantError is true if the API server rejects the request.
	wantError bool
}

func creatorRows() map[string]creatorRow {
	ann, bob := &v1alpha1.UserContext{UserID: "ann"}, &v1alpha1.UserContext{UserID: "bob"}
	spec := func(userContext any) map[string]any {
		return map[string]any{"prompt": "do it", "userContext": userContext}
	}
	plain := map[string]any{"prompt": "do it"}
	claim := map[string]any{"userID": "root"}
	return map[string]creatorRow{
		"a new session without a user":                    {spec: plain, want: ann},
		"a new session that claims another user":          {spec: spec(claim), want: ann},
		"a new session with another field of a user":      {spec: spec(map[string]any{"userID": "root", "displayName": "Ann"}), want: ann},
		"a new session with a number as the user's name":  {spec: spec(map[string]any{"userID": int64(1)}), want: ann},
		"a new session with a user of a wrong type":       {spec: spec("root"), want: ann},
		"a new session with a list of users":              {spec: spec([]any{"root"}), want: ann},
		"a new session without a spec":                    {spec: nil, wantError: true},
		"an update by another user keeps the creator":     {before: plain, spec: map[string]any{"prompt": "do it", "suspend": true}, want: bob},
		"an update cannot claim another user":             {before: plain, spec: spec(claim), wantError: true},
		"an update with the stored user":                  {before: plain, spec: spec(map[string]any{"userID": "bob"}), want: bob},
		"an update with a user that is null":              {before: plain, spec: spec(nil), want: bob},
		"a new session with a user that is null":          {spec: spec(nil), want: ann},
		"a new session with an empty user":                {spec: spec(map[string]any{}), want: ann},
		"a new session with a field that differs in case": {spec: map[string]any{"prompt": "do it", "UserContext": claim}, want: ann},
	}
}

func TestWebhookRecordsTheCreatorOfASession(t *testing.T) {
	t.Parallel()
	testCreators(t, namespace(t))
}

func TestAdmissionPolicyRecordsTheCreatorOfASession(t *testing.T) {
	const policyLabel = "test.yardmaster.dev/admission-policy"
	installAdmissionPolicy(t, policyLabel)
	ns := newNamespace(t, map[string]string{testenv.WebhookLabel: "off", policyLabel: "on"})
	poll.Until(t, "the policy to be effective", func() bool {
		s := sessionWithSpec(ns, "effective", map[string]any{"prompt": "do it"})
		if err := cluster.Create(t.Context(), s, client.DryRunAll); err != nil { // for a while, policies do not know a new kind
			t.Log(err)
			return false
		}
		_, found, _ := unstructured.NestedMap(s.Object, "spec", "userContext")
		return found
	})
	testCreators(t, ns)
}

func testCreators(t *testing.T, ns string) {
	number := 0
	for title, row := range creatorRows() {
		number++
		name := fmt.Sprintf("s%d", number)
		t.Run(title, func(t *testing.T) {
			if row.before != nil {
				require.NoError(t, clientOf(t, "bob").Create(t.Context(), sessionWithSpec(ns, name, row.before)))
			}
			err := writeSpec(t.Context(), clientOf(t, "ann"), ns, name, row)
			if row.wantError {
				require.True(t, err != nil, "the request was accepted")
				return
			}
			require.NoError(t, err)
			stored := &v1alpha1.AgenticSession{}
			mustGet(t, client.ObjectKey{Namespace: ns, Name: name}, stored)
			require.Equal(t, row.want, stored.Spec.UserContext)
		})
	}
}

// writeSpec creates a session, or replaces the spec of the one that is stored.
func writeSpec(ctx context.Context, c client.Client, ns, name string, row creatorRow) error {
	if row.before == nil {
		return c.Create(ctx, sessionWithSpec(ns, name, row.spec))
	}
	raw, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec", "value": row.spec}})
	if err != nil {
		return err
	}
	return c.Patch(ctx, sessionWithSpec(ns, name, nil), client.RawPatch(types.JSONPatchType, raw))
}

func sessionWithSpec(ns, name string, spec map[string]any) *unstructured.Unstructured {
	s := &unstructured.Unstructured{Object: map[string]any{}}
	if spec != nil {
		s.Object["spec"] = spec
	}
	s.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("AgenticSession"))
	s.SetNamespace(ns)
	s.SetName(name)
	return s
}

// clientOf returns a client that impersonates an administrator.
func clientOf(t *testing.T, user string) client.Client {
	t.Helper()
	return impersonate(t, user, "system:masters")
}

// installAdmissionPolicy installs the component admission-policy for the namespaces with this label. It skips the test where the API
// server does not have its kinds.
func installAdmissionPolicy(t *testing.T, label string) {
	t.Helper()
	if !hasMutatingAdmissionPolicies(t) {
		t.Skipf("Kubernetes %s has no MutatingAdmissionPolicy, only a webhook that does the same", serverVersion(t))
	}
	for _, object := range readManifests(t, filepath.Join(repositoryRoot, "config", "components", "admission-policy", "policy.yaml")) {
		if object.GetKind() == "MutatingAdmissionPolicy" {
			selected := map[string]any{"matchLabels": map[string]any{label: "on"}}
			require.NoError(t, unstructured.SetNestedMap(object.Object, selected, "spec", "matchConstraints", "namespaceSelector"))
		}
		mustCreate(t, object)
	}
}
