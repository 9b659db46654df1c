package integration

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
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
	"github.com/yardmaster/yardmaster/internal/operator"
	"github.com/yardmaster/yardmaster/test/poll"
)

// immediateThresholds returns thresholds with which a suspended Job is suspicious immediately.
func immediateThresholds() jobreport.Thresholds {
	thresholds := jobreport.DefaultThresholds()
	thresholds[jobreport.ReasonSuspendedTooLong].Suspicious = time.Nanosecond
	return thresholds
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

// createJobs creates suspended Jobs with this managedBy. Nil means the Job controller of Kubernetes.
func createJobs(t *testing.T, ns string, count int, managedBy *string) {
	t.Helper()
	var making sync.WaitGroup
	free := make(chan struct{}, 20)
	for i := range count {
		free <- struct{}{}
		making.Go(func() {
			defer func() { <-free }()
			job := newSuspendedJob(ns)
			job.Name, job.Spec.ManagedBy = fmt.Sprintf("job-%04d", i), managedBy
			if err := cluster.Create(t.Context(), job); err != nil {
				t.Error(err)
			}
		})
	}
	making.Wait()
}

// suspendedJobs creates Jobs, and waits until they exceed immediateThresholds.
func suspendedJobs(t *testing.T, ns string, count int) {
	t.Helper()
	createJobs(t, ns, count, nil)
	poll.Until(t, "the Job controller to have observed all Jobs before this second", func() bool {
		var list batchv1.JobList
		if err := cluster.List(t.Context(), &list, client.InNamespace(ns)); err != nil {
			return false
		}
		for i := range list.Items {
			conditions := list.Items[i].Status.Conditions
			// The time of a condition has a resolution of one second.
			if len(conditions) == 0 || time.Since(conditions[0].LastTransitionTime.Time) < time.Second {
				return false
			}
		}
		return len(list.Items) == count
	})
}

// newReporterConfig returns the operator's service account, with the permissions of the shipped Role in these
// namespaces. It waits until they take effect: the API server caches Roles.
func newReporterConfig(t *testing.T, namespaces ...string) *rest.Config {
	t.Helper()
	for _, ns := range namespaces {
		grantRole(t, ns, "controllers/jobreport")
		poll.Until(t, "the Role to take effect", func() bool { return isOperatorAllowed(t, ns, "list jobs.batch") })
	}
	return asOperator()
}

// grantRole creates the Role and RoleBinding of that directory of config/rbac in the namespace, as the
// component config/rbac/namespaced does.
func grantRole(t *testing.T, ns, directory string) {
	t.Helper()
	role, binding := &rbacv1.Role{}, &rbacv1.RoleBinding{}
	for file, object := range map[string]client.Object{"role.yaml": role, "binding.yaml": binding} {
		if err := readYAML(filepath.Join(repositoryRoot, "config", "rbac", directory, file), object); err != nil {
			t.Fatal(err)
		}
		object.SetNamespace(ns)
		binding.RoleRef.Kind = "Role"
		if err := cluster.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
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

// newScanner returns a scanner with the permissions of the configuration.
func newScanner(t *testing.T, as *rest.Config, namespaces ...string) *jobreportcontroller.Reconciler {
	t.Helper()
	return newScannerWithOptions(t, as, events.NewFakeRecorder(100), scanOptions(namespaces...))
}

// scanOptions returns the options of a scanner of these namespaces.
func scanOptions(namespaces ...string) jobreportcontroller.Options {
	return jobreportcontroller.Options{Namespaces: namespaces, Interval: time.Minute, MaxFindings: 50, Thresholds: immediateThresholds()}
}

func newScannerWithOptions(t *testing.T, as *rest.Config, recorder events.EventRecorder, options jobreportcontroller.Options) *jobreportcontroller.Reconciler {
	t.Helper()
	c, err := client.New(as, client.Options{Scheme: cluster.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return jobreportcontroller.New(c, c, recorder, testr.New(t), options)
}

func reportOf(t *testing.T, ns string) *v1alpha1.JobReport {
	t.Helper()
	report := &v1alpha1.JobReport{}
	if err := cluster.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: v1alpha1.JobReportName}, report); err != nil {
		t.Fatal(err)
	}
	return report
}

func TestJobReportOfANamespaceWithoutJobsHasZeroCounts(t *testing.T) {
	ns := namespace(t)
	newScanner(t, newReporterConfig(t, ns), ns).ReconcileAll(t.Context())
	report := &unstructured.Unstructured{}
	report.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("JobReport"))
	if err := cluster.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: v1alpha1.JobReportName}, report); err != nil {
		t.Fatal(err)
	}
	for _, column := range []string{"healthy", "suspicious", "zombie"} {
		count, found, err := unstructured.NestedInt64(report.Object, "status", "summary", column)
		if count != 0 || !found || err != nil {
			t.Errorf("%s is %d, found: %t, %v", column, count, found, err)
		}
	}
}

func TestOperatorReportsOnlyOnConfiguredNamespaces(t *testing.T) {
	reportedNamespace, other := namespace(t), namespace(t)
	suspendedJobs(t, reportedNamespace, 1)
	options, err := operator.ParseFlags([]string{
		"--controllers=jobreport", "--report-namespaces=" + reportedNamespace, "--report-interval=1s",
		"--report-suspended-too-long-suspicious-after=1ns",
		"--leader-elect=false", "--webhook=false", "--metrics-bind-address=0", "--health-probe-bind-address=0",
	}, nil, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	mgr, err := operator.New(config, options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- mgr.Start(ctx) }()
	poll.Until(t, "the report", func() bool {
		report := &v1alpha1.JobReport{}
		err := cluster.Get(t.Context(), client.ObjectKey{Namespace: reportedNamespace, Name: v1alpha1.JobReportName}, report)
		return err == nil && report.Status.Summary.Suspicious == 1
	})
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	var reports v1alpha1.JobReportList
	if err := cluster.List(t.Context(), &reports, client.InNamespace(other)); err != nil || len(reports.Items) != 0 {
		t.Errorf("%d reports in the other namespace: %v", len(reports.Items), err)
	}
}
