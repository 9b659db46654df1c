package integration

import (
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/yardmaster/yardmaster/test/poll"
)

// isOperatorAllowed returns whether the API server allows the operator a request, such as
// "get jobs.batch a": a verb, a resource with its group, and the name of one object, if any.
func isOperatorAllowed(t *testing.T, ns, what string) bool {
	t.Helper()
	verb, rest, _ := strings.Cut(what, " ")
	resource, name, _ := strings.Cut(rest, " ")
	resource, subresource, _ := strings.Cut(resource, "/")
	resource, group, _ := strings.Cut(resource, ".")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: operatorUser, Groups: operatorGroups,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: ns, Verb: verb, Group: group, Resource: resource, Subresource: subresource, Name: name,
		},
	}}
	if err := cluster.Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}

// wantRights checks whether the operator is allowed all these requests in a namespace, or none.
func wantRights(t *testing.T, ns string, want bool, rights ...string) {
	t.Helper()
	for _, right := range rights {
		if got := isOperatorAllowed(t, ns, right); got != want {
			t.Errorf("allowed to %s in %q: %t, want %t", right, ns, got, want)
		}
	}
}

// The permissions that a report requires.
var reportPermissions = []string{
	"list jobs.batch",
	"get jobreports.yardmaster.dev jobs",
	"create jobreports.yardmaster.dev",
	"update jobreports.yardmaster.dev/status jobs",
	"delete jobreports.yardmaster.dev jobs",
	"get rolebindings.rbac.authorization.k8s.io yardmaster-jobreport",
	"create events.events.k8s.io",
	"patch events.events.k8s.io",
}

func TestJobReportRoleAllowsNoChangesOfJobs(t *testing.T) {
	ns, other := namespace(t), namespace(t)
	newReporterConfig(t, ns)
	poll.Until(t, "the Role to take effect", func() bool { return isOperatorAllowed(t, ns, reportPermissions[0]) })
	wantRights(t, ns, true, reportPermissions...)
	for _, elsewhere := range []string{other, "kube-system", "yardmaster-system", ""} {
		wantRights(t, elsewhere, false, reportPermissions...)
	}
	wantRights(
		t, ns, false,
		"get jobs.batch a", "watch jobs.batch", "create jobs.batch", "update jobs.batch a", "patch jobs.batch a",
		"delete jobs.batch a", "deletecollection jobs.batch", "patch jobs.batch/status a", "list cronjobs.batch",
		"list pods", "get pods a", "delete pods a", "get pods/log a", "create pods/exec a",
		"get secrets a", "list secrets", "get configmaps a", "create serviceaccounts/token a",
		"list jobreports.yardmaster.dev", "watch jobreports.yardmaster.dev", "update jobreports.yardmaster.dev jobs",
		"patch jobreports.yardmaster.dev jobs", "delete jobreports.yardmaster.dev others", "deletecollection jobreports.yardmaster.dev",
		"patch jobreports.yardmaster.dev/status jobs", "update jobreports.yardmaster.dev/finalizers jobs",
		"get sequentialjobs.yardmaster.dev a", "list events.events.k8s.io", "get reports.openreports.io yardmaster-jobs",
		"get rolebindings.rbac.authorization.k8s.io other", "create rolebindings.rbac.authorization.k8s.io", "escalate roles.rbac.authorization.k8s.io",
	)
}

func TestOpenReportsRoleAllowsOnlyOneReport(t *testing.T) {
	ns, other := namespace(t), namespace(t)
	newReporterConfig(t, ns, other)
	grantRole(t, ns, "jobreport-openreports")
	mirroring := []string{
		"get reports.openreports.io yardmaster-jobs",
		"create reports.openreports.io yardmaster-jobs",
		"patch reports.openreports.io yardmaster-jobs",
	}
	poll.Until(t, "the Role to take effect", func() bool { return isOperatorAllowed(t, ns, mirroring[0]) })
	wantRights(t, ns, true, mirroring...)
	wantRights(t, other, false, mirroring...)
	wantRights(
		t, ns, false,
		"list reports.openreports.io", "watch reports.openreports.io", "delete reports.openreports.io yardmaster-jobs",
		"update reports.openreports.io yardmaster-jobs", "deletecollection reports.openreports.io",
		"get reports.openreports.io another", "create reports.openreports.io another", "create reports.openreports.io",
		"patch reports.openreports.io another", "get clusterreports.openreports.io yardmaster-jobs",
	)
}
