//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/testbuilder"
)

// Each line is a permission: the verb, the resource and, if it is limited to one object, its name.
var (
	// permissionsInAllNamespaces lists the operator's permissions in all namespaces: for metrics, for the webhook,
	// and to remove finalizers from objects in terminating namespaces.
	permissionsInAllNamespaces = []string{
		"create authentication.k8s.io/tokenreviews",
		"create authorization.k8s.io/subjectaccessreviews",
		"get admissionregistration.k8s.io/mutatingwebhookconfigurations",
		"get admissionregistration.k8s.io/validatingwebhookconfigurations",
		"get namespaces",
		"list admissionregistration.k8s.io/mutatingwebhookconfigurations",
		"list admissionregistration.k8s.io/validatingwebhookconfigurations",
		"patch admissionregistration.k8s.io/mutatingwebhookconfigurations yardmaster",
		"patch admissionregistration.k8s.io/validatingwebhookconfigurations yardmaster",
		"patch yardmaster.dev/queues",
		"patch yardmaster.dev/sequentialjobs",
		"patch yardmaster.dev/workerpools",
		"update admissionregistration.k8s.io/mutatingwebhookconfigurations yardmaster",
		"update admissionregistration.k8s.io/validatingwebhookconfigurations yardmaster",
		"watch admissionregistration.k8s.io/mutatingwebhookconfigurations",
		"watch admissionregistration.k8s.io/validatingwebhookconfigurations",
	}
	// permissionsInOperatorNamespace lists the additional permissions in the operator's own namespace.
	permissionsInOperatorNamespace = []string{
		"create coordination.k8s.io/leases",
		"create events",
		"create events.k8s.io/events",
		"get coordination.k8s.io/leases yardmaster.yardmaster.dev",
		"get secrets",
		"list secrets",
		"patch coordination.k8s.io/leases yardmaster.yardmaster.dev",
		"patch events",
		"patch events.k8s.io/events",
		"patch secrets yardmaster-webhook-certs",
		"update coordination.k8s.io/leases yardmaster.yardmaster.dev",
		"update secrets yardmaster-webhook-certs",
		"watch secrets",
	}
	// permissionsInWatchedNamespaces lists the additional permissions in watched namespaces.
	permissionsInWatchedNamespaces = []string{
		"create apps/deployments",
		"create apps/statefulsets",
		"create batch/jobs",
		"create configmaps",
		"create coordination.k8s.io/leases",
		"create events.k8s.io/events",
		"create monitoring.coreos.com/podmonitors",
		"create networking.k8s.io/networkpolicies",
		"create persistentvolumeclaims",
		"create pods",
		"create policy/poddisruptionbudgets",
		"create rbac.authorization.k8s.io/rolebindings",
		"create rbac.authorization.k8s.io/roles",
		"create secrets",
		"create serviceaccounts",
		"create services",
		"delete apps/deployments",
		"delete apps/statefulsets",
		"delete batch/jobs",
		"delete secrets",
		"delete yardmaster.dev/agenticsessions",
		"delete yardmaster.dev/sequentialjobs",
		"get apps/deployments",
		"get apps/statefulsets",
		"get batch/jobs",
		"get configmaps",
		"get coordination.k8s.io/leases",
		"get monitoring.coreos.com/podmonitors",
		"get networking.k8s.io/networkpolicies",
		"get persistentvolumeclaims",
		"get pods",
		"get policy/poddisruptionbudgets",
		"get rbac.authorization.k8s.io/rolebindings",
		"get rbac.authorization.k8s.io/roles",
		"get secrets",
		"get serviceaccounts",
		"get services",
		"get yardmaster.dev/agenticsessions",
		"get yardmaster.dev/policies",
		"get yardmaster.dev/queues",
		"get yardmaster.dev/sequentialjobs",
		"get yardmaster.dev/sessionrunners",
		"get yardmaster.dev/workerpools",
		"list apps/deployments",
		"list apps/statefulsets",
		"list batch/jobs",
		"list configmaps",
		"list coordination.k8s.io/leases",
		"list monitoring.coreos.com/podmonitors",
		"list networking.k8s.io/networkpolicies",
		"list pods",
		"list policy/poddisruptionbudgets",
		"list serviceaccounts",
		"list services",
		"list yardmaster.dev/agenticsessions",
		"list yardmaster.dev/policies",
		"list yardmaster.dev/queues",
		"list yardmaster.dev/sequentialjobs",
		"list yardmaster.dev/sessionrunners",
		"list yardmaster.dev/workerpools",
		"patch apps/deployments",
		"patch apps/statefulsets",
		"patch batch/jobs",
		"patch configmaps",
		"patch coordination.k8s.io/leases",
		"patch events.k8s.io/events",
		"patch monitoring.coreos.com/podmonitors",
		"patch networking.k8s.io/networkpolicies",
		"patch persistentvolumeclaims",
		"patch pods",
		"patch policy/poddisruptionbudgets",
		"patch rbac.authorization.k8s.io/rolebindings",
		"patch rbac.authorization.k8s.io/roles",
		"patch secrets",
		"patch serviceaccounts",
		"patch services",
		"patch yardmaster.dev/agenticsessions/status",
		"patch yardmaster.dev/policies/status",
		"patch yardmaster.dev/queues/status",
		"patch yardmaster.dev/sequentialjobs/status",
		"patch yardmaster.dev/workerpools/status",
		"update configmaps",
		"update coordination.k8s.io/leases",
		"watch apps/deployments",
		"watch apps/statefulsets",
		"watch batch/jobs",
		"watch configmaps",
		"watch coordination.k8s.io/leases",
		"watch monitoring.coreos.com/podmonitors",
		"watch networking.k8s.io/networkpolicies",
		"watch pods",
		"watch policy/poddisruptionbudgets",
		"watch serviceaccounts",
		"watch services",
		"watch yardmaster.dev/agenticsessions",
		"watch yardmaster.dev/policies",
		"watch yardmaster.dev/queues",
		"watch yardmaster.dev/sequentialjobs",
		"watch yardmaster.dev/sessionrunners",
		"watch yardmaster.dev/workerpools",
	}
	// permissionsInReportedNamespaces lists the additional permissions in namespaces that the operator reports on.
	permissionsInReportedNamespaces = []string{
		"create events.k8s.io/events",
		"create yardmaster.dev/jobreports",
		"get yardmaster.dev/jobreports",
		"list batch/jobs",
		"patch events.k8s.io/events",
		"patch yardmaster.dev/jobreports/status",
	}
)

func testLeastPrivilege(t *testing.T) {
	for namespace, extra := range map[string][]string{
		watchedNamespace: permissionsInWatchedNamespaces, deletedNamespace: permissionsInWatchedNamespaces, operatorNamespace: permissionsInOperatorNamespace, reportedNamespace: permissionsInReportedNamespaces, unwatchedNamespace: nil, "kube-system": nil,
	} {
		want := slices.Sorted(slices.Values(slices.Concat(permissionsInAllNamespaces, extra)))
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
	as.Impersonate = rest.ImpersonationConfig{UserName: serviceAccount, Groups: serviceAccountGroups(serviceAccount)}
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
	everyones := listPermissions(t, "system:serviceaccount:default:default", namespace)
	return slices.DeleteFunc(listPermissions(t, serviceAccount, namespace), func(permission string) bool {
		return slices.Contains(everyones, permission)
	})
}

// listPermissions returns the user's permissions in a namespace, from a SelfSubjectRulesReview.
func listPermissions(t *testing.T, user, namespace string) []string {
	t.Helper()
	as := rest.CopyConfig(config)
	as.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: serviceAccountGroups(user)}
	clients, err := kubernetes.NewForConfig(as)
	requireNoError(t, err)
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
	answer, err := clients.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), review, metav1.CreateOptions{})
	requireNoError(t, err)
	if answer.Status.Incomplete {
		t.Fatalf("the answer is incomplete: %s", answer.Status.EvaluationError)
	}
	var all []string
	for _, rule := range answer.Status.ResourceRules {
		all = append(all, permissionsOf(rule)...)
	}
	for _, rule := range answer.Status.NonResourceRules {
		for _, url := range rule.NonResourceURLs {
			all = append(all, strings.Join(rule.Verbs, ",")+" "+url)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func permissionsOf(rule authorizationv1.ResourceRule) (all []string) {
	names := []string{""}
	if len(rule.ResourceNames) > 0 {
		names = rule.ResourceNames
	}
	for _, verb := range rule.Verbs {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					kind := strings.TrimPrefix(group+"/"+resource, "/")
					all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s %s", verb, kind, name)))
				}
			}
		}
	}
	return all
}

func serviceAccountGroups(user string) []string {
	namespace := strings.Split(user, ":")[2]
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}
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
		{Verb: "delete", Resource: "pods", Namespace: watchedNamespace},
		{Verb: "create", Resource: "pods", Subresource: "exec", Namespace: watchedNamespace},
		{Verb: "get", Resource: "pods", Subresource: "log", Namespace: watchedNamespace},
		{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: watchedNamespace},
		{Verb: "delete", Resource: "persistentvolumeclaims", Namespace: watchedNamespace},
		{Verb: "create", Group: "yardmaster.dev", Resource: "sequentialjobs", Namespace: watchedNamespace},
		{Verb: "delete", Resource: "configmaps", Namespace: watchedNamespace},
		{Verb: "delete", Resource: "services", Namespace: watchedNamespace},
		{Verb: "delete", Resource: "serviceaccounts", Namespace: watchedNamespace},
		{Verb: "delete", Group: "networking.k8s.io", Resource: "networkpolicies", Namespace: watchedNamespace},
		{Verb: "create", Group: "yardmaster.dev", Resource: "agenticsessions", Namespace: watchedNamespace},
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
		{Verb: "update", Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations", Name: "another"},
		{Verb: "get", Resource: "nodes"},
		{Verb: "update", Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations", Name: "another"},
		{Verb: "list", Resource: "namespaces"},
		{Verb: "impersonate", Resource: "users"},
		{Verb: "escalate", Group: "rbac.authorization.k8s.io", Resource: "clusterroles"},
	} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: serviceAccount, Groups: serviceAccountGroups(serviceAccount), ResourceAttributes: &a,
		}}
		requireNoError(t, cluster.Create(t.Context(), review))
		if review.Status.Allowed {
			t.Errorf("the operator is allowed to %s: %s", strings.TrimSpace(fmt.Sprintf("%+v", a)), review.Status.Reason)
		}
	}
}
