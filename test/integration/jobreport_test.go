package integration

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	openreportsv1alpha1 "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
	jobreportcontroller "github.com/yardmaster/yardmaster/internal/kinds/jobreport/controller"
	"github.com/yardmaster/yardmaster/test/permissions"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testenv"
)

func TestOpenReports(t *testing.T) {
	removeOpenReports(t)
	crd := openReportsCRD(t)
	t.Cleanup(func() { require.NoError(t, client.IgnoreNotFound(cluster.Delete(context.Background(), crd))) })
	ns, bare := namespace(t), namespace(t) // with the Role for OpenReports, and without
	for i := range 3 {
		for _, one := range []string{ns, bare} {
			job := newSuspendedJob(one)
			// No controller manages it, so that nothing changes it.
			job.Name, job.Spec.ManagedBy = fmt.Sprintf("job-%d", i), new("example.com/no-controller")
			mustCreate(t, job)
		}
	}
	grantRole(t, ns, "jobreport-openreports")
	scanner := newScanner(t, ns, bare)
	// wantExported scans, and checks that the JobReport is correct, whatever happened to the Report.
	wantExported := func(in string, status metav1.ConditionStatus, reason string) {
		t.Helper()
		scanner.ReconcileAll(t.Context())
		report := reportOf(t, in).Status
		ready := meta.FindStatusCondition(report.Conditions, v1alpha1.ConditionOpenReportsReady)
		require.True(t, ready != nil && ready.Status == status && ready.Reason == reason, "%s: condition %+v, want %s %s", in, ready, status, reason)
		if !meta.IsStatusConditionTrue(report.Conditions, v1alpha1.ConditionReady) || report.Summary.Total != 3 || len(report.Findings) != 3 {
			t.Errorf("%s: the JobReport has %d Jobs and %d findings, want 3: %+v", in, report.Summary.Total, len(report.Findings), report.Conditions)
		}
	}
	wantExported(ns, metav1.ConditionFalse, v1alpha1.ReasonCRDMissing)
	require.NoError(t, cluster.Create(t.Context(), openReportsCRD(t)))
	poll.Until(t, "the kind to be served", func() bool { return openReportsClient(t).List(t.Context(), &openreportsv1alpha1.ReportList{}) == nil })

	// A Report of another owner is not changed.
	others := &openreportsv1alpha1.Report{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: jobreport.ReportName}, Source: "another-tool"}
	reports := openReportsClient(t)
	require.NoError(t, reports.Create(t.Context(), others))
	wantExported(ns, metav1.ConditionFalse, v1alpha1.ReasonNameTaken)
	require.Equal(t, others.ResourceVersion, openReport(t, ns).ResourceVersion)
	require.NoError(t, reports.Delete(t.Context(), others))

	wantExported(ns, metav1.ConditionTrue, v1alpha1.ReasonWritten)
	wantExported(bare, metav1.ConditionFalse, v1alpha1.ReasonForbidden)
	got, jobReport := openReport(t, ns), reportOf(t, ns)
	require.True(t, jobreport.HasSameContent(got, jobreport.FromJobReport(jobReport)) && got.Summary.Warn == 3,
		"the Report differs from the JobReport: %+v", got)
	require.True(t, len(got.OwnerReferences) == 1 && got.OwnerReferences[0].UID == jobReport.UID, "the owners are %+v", got.OwnerReferences)
	require.True(t, len(got.ManagedFields) == 1 && got.ManagedFields[0].Manager == "yardmaster-jobreport",
		"its fields are managed by %+v", got.ManagedFields)

	// An edited Report is corrected, and a correct one is not written.
	got.Summary.Warn, got.Results = 0, nil
	require.NoError(t, reports.Update(t.Context(), got))
	wantExported(ns, metav1.ConditionTrue, v1alpha1.ReasonWritten)
	corrected := openReport(t, ns)
	require.True(t, jobreport.HasSameContent(corrected, jobreport.FromJobReport(reportOf(t, ns))), "the Report was not corrected: %+v", corrected)
	wantExported(ns, metav1.ConditionTrue, v1alpha1.ReasonWritten)
	require.Equal(t, corrected.ResourceVersion, openReport(t, ns).ResourceVersion) // a Report that is correct is not written
	removeOpenReports(t)
	wantExported(ns, metav1.ConditionFalse, v1alpha1.ReasonCRDMissing)

	// kubectl shows a count of zero, not an empty column.
	stored := &unstructured.Unstructured{}
	stored.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("JobReport"))
	mustGet(t, client.ObjectKeyFromObject(jobReport), stored)
	count, found, err := unstructured.NestedInt64(stored.Object, "status", "summary", "zombie")
	require.True(t, count == 0 && found && err == nil, "%d zombies, found: %t, %v", count, found, err)
}

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

// grantRole creates the Role and RoleBinding of that directory of config/rbac in the namespace, as the component config/rbac/namespaced does.
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

// newScanner returns a scanner of these namespaces with the permissions of the shipped Role, for which an abandoned Job is suspicious immediately.
func newScanner(t *testing.T, namespaces ...string) *jobreportcontroller.Reconciler {
	const operator = "system:serviceaccount:yardmaster-system:yardmaster"
	as := rest.CopyConfig(config)
	as.Impersonate = rest.ImpersonationConfig{UserName: operator, Groups: permissions.Groups(operator)}
	c, err := client.New(as, client.Options{Scheme: cluster.Scheme()})
	require.NoError(t, err)
	for _, ns := range namespaces {
		grantRole(t, ns, "controllers/jobreport")
		poll.Until(t, "the Role to take effect", func() bool { return c.List(t.Context(), &batchv1.JobList{}, client.InNamespace(ns)) == nil })
	}
	thresholds := jobreport.DefaultThresholds()
	thresholds[jobreport.ReasonExternallyManaged].Suspicious = time.Nanosecond
	options := jobreportcontroller.Options{Namespaces: namespaces, Interval: time.Minute, MaxFindings: 50, Thresholds: thresholds, OpenReports: true}
	return jobreportcontroller.New(c, c, events.NewFakeRecorder(100), testr.New(t), options)
}

func reportOf(t *testing.T, ns string) *v1alpha1.JobReport {
	return mustGet(t, client.ObjectKey{Namespace: ns, Name: v1alpha1.JobReportName}, &v1alpha1.JobReport{})
}

func openReport(t *testing.T, ns string) *openreportsv1alpha1.Report {
	t.Helper()
	report := &openreportsv1alpha1.Report{}
	require.NoError(t, openReportsClient(t).Get(t.Context(), client.ObjectKey{Namespace: ns, Name: jobreport.ReportName}, report))
	return report
}

func openReportsClient(t *testing.T) client.Client {
	t.Helper()
	require.NoError(t, openreportsv1alpha1.Install(cluster.Scheme()))
	c, err := client.New(config, client.Options{Scheme: cluster.Scheme()})
	require.NoError(t, err)
	return c
}

func openReportsCRD(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	directory := strings.TrimSpace(testenv.Run(t, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/openreports/reports-api"))
	crd := &unstructured.Unstructured{}
	require.NoError(t, readYAML(filepath.Join(directory, "config", "crd", "openreports.io_reports.yaml"), crd))
	return crd
}

func removeOpenReports(t *testing.T) {
	t.Helper()
	crd := openReportsCRD(t)
	require.NoError(t, client.IgnoreNotFound(cluster.Delete(t.Context(), crd)))
	poll.Until(t, "the kind to be removed", func() bool {
		err := cluster.Get(t.Context(), client.ObjectKeyFromObject(crd), crd.DeepCopy())
		return apierrors.IsNotFound(err) && openReportsClient(t).List(t.Context(), &openreportsv1alpha1.ReportList{}) != nil
	})
}
