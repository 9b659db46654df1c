package permissions

import (
	"slices"
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/test/require"
)

// escalations are permissions that lead to control of the cluster, or of what others run: each verb on each resource. The name
// matters only where the operator may have one object of the kind.
var escalations = []struct{ verbs, group, resources string }{
	// Who writes these reads and changes every request, grants permissions, or speaks for the API server.
	{"create update patch", "admissionregistration.k8s.io", "validatingwebhookconfigurations mutatingwebhookconfigurations " +
		"validatingadmissionpolicies validatingadmissionpolicybindings mutatingadmissionpolicies mutatingadmissionpolicybindings"},
	{"delete deletecollection", "admissionregistration.k8s.io", "validatingwebhookconfigurations validatingadmissionpolicies validatingadmissionpolicybindings"},
	{"create update patch bind escalate", "rbac.authorization.k8s.io", "roles clusterroles rolebindings clusterrolebindings"},
	{"create update patch", "apiextensions.k8s.io", "customresourcedefinitions"},
	{"create update patch", "apiregistration.k8s.io", "apiservices"},
	{"impersonate", "", "users groups serviceaccounts"},
	{"impersonate", "authentication.k8s.io", "uids userextras"},
	{"create update patch", "certificates.k8s.io", "certificatesigningrequests certificatesigningrequests/approval"},
	{"approve sign", "certificates.k8s.io", "signers"},
	// Credentials of others.
	{"create", "", "serviceaccounts/token"},
	{"create update patch", "", "serviceaccounts"},
	{"get list watch", "", "secrets"},
	{"create update patch", "", "secrets configmaps"},
	// Programs of others, with their ServiceAccounts and volumes.
	{"create update patch", "", "pods pods/ephemeralcontainers replicationcontrollers podtemplates"},
	{"create get", "", "pods/exec pods/attach pods/portforward pods/proxy services/proxy nodes/proxy"},
	{"create update patch", "apps", "deployments daemonsets statefulsets replicasets controllerrevisions"},
	{"create update patch", "batch", "jobs cronjobs"},
	{"update patch", "", "nodes nodes/status pods/status"},
	{"create", "", "bindings pods/binding"},
	{"create update patch", "", "persistentvolumes"},
	// What protects or connects others.
	{"create update patch delete", "", "namespaces resourcequotas limitranges"},
	{"create update patch", "", "services endpoints"},
	{"create update patch", "discovery.k8s.io", "endpointslices"},
	{"update patch delete", "networking.k8s.io", "networkpolicies ingresses"},
	{"create update patch", "flowcontrol.apiserver.k8s.io", "flowschemas prioritylevelconfigurations"},
	{"create update patch", "scheduling.k8s.io", "priorityclasses"},
	{"create update patch", "storage.k8s.io", "storageclasses csidrivers"},
	{"create update patch", "node.k8s.io", "runtimeclasses"},
	{"update patch delete", "coordination.k8s.io", "leases"},
}

// ownObjects are permissions for the operator's objects in its own namespace, which lead nowhere.
var ownObjects = []string{
	"update leases.coordination.k8s.io yardmaster.yardmaster.dev", "patch leases.coordination.k8s.io yardmaster.yardmaster.dev",
	"get secrets yardmaster-worker-admin", "patch secrets yardmaster-worker-admin", "get secrets yardmaster-broker",
}

// Outside the namespaces that it serves, with any set of controllers, the operator has no permission that leads further. That it has
// those of the page, and no others, is what TestPermissionsEqualTheReferencePage shows.
func TestNoPermissionOutsideTheServedNamespacesLeadsToControlOfTheCluster(t *testing.T) {
	page, err := ReadPage("../../docs/reference/permissions.md")
	require.NoError(t, err)
	leadsFurther := map[string]bool{}
	for _, e := range escalations {
		for resource := range strings.FieldsSeq(e.resources) {
			for verb := range strings.FieldsSeq(e.verbs) {
				leadsFurther[verb+" "+qualifiedResource(e.group, resource)] = true
			}
		}
	}
	for _, section := range []string{AllNamespaces, ReportedNamespaces, OperatorNamespace} {
		if len(page[section]) == 0 {
			t.Errorf("the page has no section %q", section)
		}
		for column, list := range page[section] {
			for _, permission := range list {
				verb, object, _ := strings.Cut(permission, " ")
				resource, _, _ := strings.Cut(object, " ")
				isOwn := section == OperatorNamespace && slices.Contains(ownObjects, permission)
				if !isOwn && (leadsFurther[verb+" "+resource] || strings.Contains(permission, "*")) {
					t.Errorf("%s, %s: %s", section, column, permission)
				}
			}
		}
	}
}

// Where the operator works, other permissions would let it read, run or delete what users own.
func TestTheOperatorCanNeitherReadLogsOrListsOfSecretsNorDeleteWhatUsersOwn(t *testing.T) {
	page, err := ReadPage("../../docs/reference/permissions.md")
	require.NoError(t, err)
	for _, denied := range []struct{ section, verbs, group, resources string }{
		{WatchedNamespaces, "list watch", "", "secrets"},
		{WatchedNamespaces, "create", "", "pods/exec serviceaccounts/token"},
		{WatchedNamespaces, "get", "", "pods/log"},
		{WatchedNamespaces, "delete", "", "persistentvolumeclaims configmaps services serviceaccounts"},
		{WatchedNamespaces, "deletecollection", "", "pods"},
		{WatchedNamespaces, "delete", "networking.k8s.io", "networkpolicies"},
		{WatchedNamespaces, "patch", "yardmaster.dev", "agenticsessions sessionrunners policies"},
		{WatchedNamespaces, "delete", "yardmaster.dev", "queues workerpools"},
		{WatchedNamespaces, "bind escalate", "rbac.authorization.k8s.io", "roles"},
		{ReportedNamespaces, "list delete", "", "pods"},
		{ReportedNamespaces, "get patch delete", "batch", "jobs"},
		{ReportedNamespaces, "delete", "yardmaster.dev", "jobreports"},
		{AllNamespaces, "create list", "yardmaster.dev", "sequentialjobs agenticsessions"},
		{AllNamespaces, "list", "batch", "jobs"},
		{AllNamespaces, "list", "", "namespaces"},
		{AllNamespaces, "get", "", "nodes"},
	} {
		for column, list := range page[denied.section] {
			for _, permission := range list {
				verb, resource, _ := strings.Cut(permission, " ")
				for name := range strings.FieldsSeq(denied.resources) {
					isDenied := verb == "*" || slices.Contains(strings.Fields(denied.verbs), verb) && resource == qualifiedResource(denied.group, name)
					require.True(t, !isDenied, "%s, %s: %s", denied.section, column, permission)
				}
			}
		}
	}
}
