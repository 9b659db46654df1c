package integration

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
	jobreportcontroller "github.com/yardmaster/yardmaster/internal/kinds/jobreport/controller"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

// absentController is a value of managedBy for which no controller exists.
const absentController = "example.com/no-controller"

// abandonedJobs creates Jobs that no controller manages, so that nothing changes them.
func abandonedJobs(t *testing.T, ns string, count int) {
	t.Helper()
	var making sync.WaitGroup
	free := make(chan struct{}, 20)
	for i := range count {
		free <- struct{}{}
		making.Go(func() {
			defer func() { <-free }()
			job := newSuspendedJob(ns)
			job.Name, job.Spec.ManagedBy = fmt.Sprintf("job-%04d", i), new(absentController)
			if err := cluster.Create(t.Context(), job); err != nil {
				t.Error(err)
			}
		})
	}
	making.Wait()
}

// newSuspendedJob returns a suspended Job.
func newSuspendedJob(ns string) *batchv1.Job {
	job := &batchv1.Job{}
	job.Namespace = ns
	job.Spec.Suspend = new(true)
	job.Spec.Template.Spec = corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "main", Image: "busybox:1.37"}},
	}
	return job
}

// isOperatorAllowed returns whether the API server allows the operator to list Jobs of a namespace.
func isOperatorAllowed(t *testing.T, ns string) bool {
	t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: operatorUser, Groups: operatorGroups,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: ns, Verb: "list", Group: "batch", Resource: "jobs"},
	}}
	require.NoError(t, cluster.Create(t.Context(), review))
	return review.Status.Allowed
}

// newReporterConfig returns the operator's service account, with the permissions of the shipped Role in these
// namespaces. It waits until they take effect: the API server caches Roles.
func newReporterConfig(t *testing.T, namespaces ...string) *rest.Config {
	t.Helper()
	for _, ns := range namespaces {
		grantRole(t, ns, "controllers/jobreport")
		poll.Until(t, "the Role to take effect", func() bool { return isOperatorAllowed(t, ns) })
	}
	return asOperator()
}

// grantRole creates the Role and RoleBinding of that directory of config/rbac in the namespace, as the
// component config/rbac/namespaced does.
func grantRole(t *testing.T, ns, directory string) {
	t.Helper()
	role, binding := &rbacv1.Role{}, &rbacv1.RoleBinding{}
	for file, object := range map[string]client.Object{"role.yaml": role, "binding.yaml": binding} {
		require.NoError(t, readYAML(filepath.Join(repositoryRoot, "config", "rbac", directory, file), object))
		object.SetNamespace(ns)
		binding.RoleRef.Kind = "Role"
		mustCreate(t, object)
	}
}

// operatorUser is the operator's service account.
const operatorUser = "system:serviceaccount:yardmaster-system:yardmaster"

var operatorGroups = []string{"system:serviceaccounts", "system:serviceaccounts:yardmaster-system", "system:authenticated"}

func asOperator() *rest.Config {
	as := rest.CopyConfig(config)
	as.Impersonate = rest.ImpersonationConfig{UserName: operatorUser, Groups: operatorGroups}
	return as
}

// scanOptions returns the options of a scanner of these namespaces, for which an abandoned Job is suspicious immediately.
func scanOptions(namespaces ...string) jobreportcontroller.Options {
	thresholds := jobreport.DefaultThresholds()
	thresholds[jobreport.ReasonExternallyManaged].Suspicious = time.Nanosecond
	return jobreportcontroller.Options{Namespaces: namespaces, Interval: time.Minute, MaxFindings: 50, Thresholds: thresholds}
}

// newScanner returns a scanner with the permissions of the configuration.
func newScanner(t *testing.T, as *rest.Config, recorder events.EventRecorder, options jobreportcontroller.Options) *jobreportcontroller.Reconciler {
	t.Helper()
	c, err := client.New(as, client.Options{Scheme: cluster.Scheme()})
	require.NoError(t, err)
	return jobreportcontroller.New(c, c, recorder, testr.New(t), options)
}

func reportOf(t *testing.T, ns string) *v1alpha1.JobReport {
	t.Helper()
	report := &v1alpha1.JobReport{}
	mustGet(t, client.ObjectKey{Namespace: ns, Name: v1alpha1.JobReportName}, report)
	return report
}

func TestJobReportOfANamespaceWithoutJobsHasZeroCounts(t *testing.T) {
	ns := namespace(t)
	newScanner(t, newReporterConfig(t, ns), events.NewFakeRecorder(100), scanOptions(ns)).ReconcileAll(t.Context())
	report := &unstructured.Unstructured{}
	report.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("JobReport"))
	mustGet(t, client.ObjectKey{Namespace: ns, Name: v1alpha1.JobReportName}, report)
	for _, column := range []string{"healthy", "suspicious", "zombie"} {
		count, found, err := unstructured.NestedInt64(report.Object, "status", "summary", column)
		if count != 0 || !found || err != nil {
			t.Errorf("%s is %d, found: %t, %v", column, count, found, err)
		}
	}
}
