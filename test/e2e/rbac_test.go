//go:build e2e

package e2e

import (
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/permissions"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// The operator needs patch only to remove finalizers. RBAC cannot express that; a
// ValidatingAdmissionPolicy denies changes of the spec.
func testOperatorCannotChangeSpecs(t *testing.T) {
	as := rest.CopyConfig(config)
	as.Impersonate = rest.ImpersonationConfig{UserName: serviceAccount, Groups: permissions.Groups(serviceAccount)}
	asOperator, err := client.New(as, client.Options{Scheme: cluster.Scheme()})
	require.NoError(t, err)
	s := createSequenceIn(t, unwatchedNamespace, testbuilder.SequentialJob("immutable", "").Step("a", shellScript("true")).Obj())
	patch := func(text string) error {
		return asOperator.Patch(t.Context(), s.readSequence().DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text)))
	}
	if err := patch(`{"spec":{"suspend":true}}`); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "may not change a spec") {
		t.Errorf("a change of the spec: %v", err)
	}
	require.NoError(t, patch(`{"metadata":{"finalizers":["`+v1alpha1.SequentialJobFinalizer+`"]}}`))
	require.NoError(t, patch(`{"metadata":{"finalizers":null}}`))
}

// operatorPermissions returns the operator's permissions in a namespace, except those of every user.
func operatorPermissions(t *testing.T, namespace string) []string {
	t.Helper()
	granted, err := permissions.OfServiceAccount(t.Context(), config, serviceAccount, namespace)
	require.NoError(t, err)
	return granted
}

// grantRole gives the ServiceAccount of this name a Role of the same name.
func grantRole(t *testing.T, ns, name string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}, Rules: rules}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: ns}},
	}
	for _, object := range []client.Object{role, binding} {
		require.NoError(t, client.IgnoreAlreadyExists(cluster.Create(t.Context(), object)))
	}
}

// testForbiddenRequests checks that the authorizer denies the most dangerous requests where the operator works, whatever
// docs/reference/permissions.md lists. test/permissions does that elsewhere.
func testForbiddenRequests(t *testing.T) {
	for _, denied := range []struct{ verbs, group, resources, namespace string }{
		{"list watch", "", "secrets", watchedNamespace},
		{"create", "", "pods/exec serviceaccounts/token", watchedNamespace},
		{"get", "", "pods/log", watchedNamespace},
		{"delete", "", "persistentvolumeclaims configmaps services serviceaccounts", watchedNamespace},
		{"deletecollection", "", "pods", watchedNamespace},
		{"delete", "networking.k8s.io", "networkpolicies", watchedNamespace},
		{"patch", "yardmaster.dev", "agenticsessions sessionrunners policies", watchedNamespace},
		{"delete", "yardmaster.dev", "queues workerpools", watchedNamespace},
		{"bind escalate", "rbac.authorization.k8s.io", "roles", watchedNamespace},
		{"delete", "", "pods", reportedNamespace},
		{"list", "", "pods", reportedNamespace},
		{"get patch delete", "batch", "jobs", reportedNamespace},
		{"delete", "yardmaster.dev", "jobreports", reportedNamespace},
		{"create", "yardmaster.dev", "sequentialjobs agenticsessions", unwatchedNamespace},
		{"list", "batch", "jobs", ""},
		{"list", "yardmaster.dev", "sequentialjobs", ""},
		{"list", "", "namespaces", ""},
		{"get", "", "nodes", ""},
	} {
		for name := range strings.FieldsSeq(denied.resources) {
			resource, subresource, _ := strings.Cut(name, "/")
			for verb := range strings.FieldsSeq(denied.verbs) {
				review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
					User: serviceAccount, Groups: permissions.Groups(serviceAccount),
					ResourceAttributes: &authorizationv1.ResourceAttributes{
						Verb: verb, Group: denied.group, Resource: resource, Subresource: subresource, Namespace: denied.namespace,
					},
				}}
				require.NoError(t, cluster.Create(t.Context(), review))
				if review.Status.Allowed {
					t.Errorf("the operator is allowed to %s %s in namespace %q: %s", verb, name, denied.namespace, review.Status.Reason)
				}
			}
		}
	}
}
