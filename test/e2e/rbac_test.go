//go:build e2e

package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/permissions"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// watchingControllers are the controllers that work in watched namespaces.
var watchingControllers = []string{"agenticsession", "egressproxy", "policy", "queue", "schedule", "sequentialjob", "workerpool"}

// The page docs/reference/permissions.md is generated from the manifests. The API server must grant
// what it says, and nothing else.
func testLeastPrivilege(t *testing.T) {
	page, err := permissions.ReadPage(filepath.Join(repositoryRoot, "docs", "reference", "permissions.md"))
	requireNoError(t, err)
	watched := page.Columns(permissions.WatchedNamespaces, watchingControllers...)
	everywhere := page.Columns(permissions.AllNamespaces, append([]string{"metrics", "admission policies", "identity", "API server"}, watchingControllers...)...)
	for namespace, extra := range map[string][]string{
		watchedNamespace: watched, deletedNamespace: watched, unwatchedNamespace: nil, "kube-system": nil,
		operatorNamespace: page.Columns(permissions.OperatorNamespace, "leader election", "workers", "own Pod"),
		reportedNamespace: page.Columns(permissions.ReportedNamespaces, "jobreport"),
	} {
		want := permissions.Union(everywhere, extra)
		if diff := cmp.Diff(want, operatorPermissions(t, namespace)); diff != "" {
			t.Errorf("permissions in namespace %s (-want, +got):\n%s", namespace, diff)
		}
	}
	wantForbidden(t)
}

// The operator needs patch only to remove finalizers. RBAC cannot express that; a
// ValidatingAdmissionPolicy denies changes of the spec.
func testOperatorCannotChangeSpecs(t *testing.T) {
	as := rest.CopyConfig(config)
	as.Impersonate = rest.ImpersonationConfig{UserName: serviceAccount, Groups: permissions.Groups(serviceAccount)}
	asOperator, err := client.New(as, client.Options{Scheme: cluster.Scheme()})
	requireNoError(t, err)
	s := createSequenceIn(t, unwatchedNamespace, testbuilder.SequentialJob("immutable", "").Step("a", shellScript("true")).Obj())
	patch := func(text string) error {
		return asOperator.Patch(t.Context(), s.readSequence().DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text)))
	}
	if err := patch(`{"spec":{"suspend":true}}`); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "may not change a spec") {
		t.Errorf("a change of the spec: %v", err)
	}
	requireNoError(t, patch(`{"metadata":{"finalizers":["`+v1alpha1.SequentialJobFinalizer+`"]}}`))
	requireNoError(t, patch(`{"metadata":{"finalizers":null}}`))
}

// operatorPermissions returns the operator's permissions in a namespace, except those of every user.
func operatorPermissions(t *testing.T, namespace string) []string {
	t.Helper()
	granted, err := permissions.OfServiceAccount(t.Context(), config, serviceAccount, namespace)
	requireNoError(t, err)
	return granted
}

// wantForbidden checks that the authorizer denies the most dangerous requests.
func wantForbidden(t *testing.T) {
	t.Helper()
	type attributes = authorizationv1.ResourceAttributes
	for _, a := range []attributes{
		{Verb: "list", Resource: "secrets", Namespace: watchedNamespace},
		{Verb: "watch", Resource: "secrets", Namespace: watchedNamespace},
		{Verb: "get", Resource: "secrets", Namespace: reportedNamespace},
		{Verb: "get", Resource: "secrets", Namespace: unwatchedNamespace},
		{Verb: "create", Resource: "pods", Namespace: unwatchedNamespace}, // in watched namespaces, sessions need dry runs of Pods
		{Verb: "delete", Resource: "pods", Namespace: reportedNamespace},  // in watched namespaces, workers that have finished and the Pods of deleted sessions are ended
		{Verb: "deletecollection", Resource: "pods", Namespace: watchedNamespace},
		{Verb: "create", Resource: "pods", Subresource: "exec", Namespace: watchedNamespace},
		{Verb: "get", Resource: "pods", Subresource: "log", Namespace: watchedNamespace},
		{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: watchedNamespace},
		{Verb: "delete", Resource: "persistentvolumeclaims", Namespace: watchedNamespace},
		{Verb: "create", Group: "yardmaster.dev", Resource: "sequentialjobs", Namespace: unwatchedNamespace}, // in watched namespaces, Schedules need it
		{Verb: "delete", Resource: "configmaps", Namespace: watchedNamespace},
		{Verb: "delete", Resource: "services", Namespace: watchedNamespace},
		{Verb: "delete", Resource: "serviceaccounts", Namespace: watchedNamespace},
		{Verb: "delete", Group: "networking.k8s.io", Resource: "networkpolicies", Namespace: watchedNamespace},
		{Verb: "create", Group: "yardmaster.dev", Resource: "agenticsessions", Namespace: unwatchedNamespace},
		{Verb: "patch", Group: "yardmaster.dev", Resource: "agenticsessions", Namespace: watchedNamespace},
		{Verb: "patch", Group: "yardmaster.dev", Resource: "sessionrunners", Namespace: watchedNamespace},
		{Verb: "bind", Group: "rbac.authorization.k8s.io", Resource: "roles", Namespace: watchedNamespace},
		{Verb: "escalate", Group: "rbac.authorization.k8s.io", Resource: "roles", Namespace: watchedNamespace},
		{Verb: "delete", Group: "yardmaster.dev", Resource: "queues", Namespace: watchedNamespace},
		{Verb: "delete", Group: "yardmaster.dev", Resource: "workerpools", Namespace: watchedNamespace},
		{Verb: "patch", Group: "yardmaster.dev", Resource: "policies", Namespace: watchedNamespace},
		{Verb: "delete", Group: "batch", Resource: "jobs", Namespace: reportedNamespace},
		{Verb: "patch", Group: "batch", Resource: "jobs", Namespace: reportedNamespace},
		{Verb: "get", Group: "batch", Resource: "jobs", Namespace: reportedNamespace},
		{Verb: "list", Resource: "pods", Namespace: reportedNamespace},
		{Verb: "delete", Group: "yardmaster.dev", Resource: "jobreports", Namespace: reportedNamespace},
		{Verb: "create", Group: "batch", Resource: "jobs", Namespace: unwatchedNamespace},
		{Verb: "list", Group: "batch", Resource: "jobs", Namespace: unwatchedNamespace},
		{Verb: "list", Group: "batch", Resource: "jobs"}, // in all namespaces
		{Verb: "list", Group: "yardmaster.dev", Resource: "sequentialjobs"},
		{Verb: "create", Group: "batch", Resource: "jobs", Namespace: operatorNamespace},
		{Verb: "create", Resource: "secrets", Namespace: operatorNamespace},
		{Verb: "update", Resource: "secrets", Namespace: operatorNamespace, Name: "another"},
		{Verb: "get", Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-system", Name: "kube-scheduler"},
		{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: operatorNamespace, Name: "another"},
		{Verb: "update", Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations", Name: "yardmaster"},
		{Verb: "get", Resource: "nodes"},
		{Verb: "update", Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations", Name: "yardmaster"},
		{Verb: "list", Resource: "namespaces"},
		{Verb: "impersonate", Resource: "users"},
		{Verb: "escalate", Group: "rbac.authorization.k8s.io", Resource: "clusterroles"},
	} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: serviceAccount, Groups: permissions.Groups(serviceAccount), ResourceAttributes: &a,
		}}
		requireNoError(t, cluster.Create(t.Context(), review))
		if review.Status.Allowed {
			t.Errorf("the operator is allowed to %s: %s", strings.TrimSpace(fmt.Sprintf("%+v", a)), review.Status.Reason)
		}
	}
}
