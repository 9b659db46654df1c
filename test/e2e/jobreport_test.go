//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// shortThresholds sets thresholds of seconds for the operator, instead of hours and days.
var shortThresholds = []string{
	"YARDMASTER_REPORT_INTERVAL=2s",
	"YARDMASTER_REPORT_STUCK_TERMINATING_SUSPICIOUS_AFTER=1s", "YARDMASTER_REPORT_STUCK_TERMINATING_ZOMBIE_AFTER=5s",
	"YARDMASTER_REPORT_SUSPENDED_TOO_LONG_SUSPICIOUS_AFTER=1s", "YARDMASTER_REPORT_SUSPENDED_TOO_LONG_ZOMBIE_AFTER=5s",
	"YARDMASTER_REPORT_NO_READY_PODS_SUSPICIOUS_AFTER=5s", "YARDMASTER_REPORT_NO_READY_PODS_ZOMBIE_AFTER=15s",
	"YARDMASTER_REPORT_RUNNING_TOO_LONG_SUSPICIOUS_AFTER=5s", "YARDMASTER_REPORT_RUNNING_TOO_LONG_ZOMBIE_AFTER=1h",
	"YARDMASTER_REPORT_NO_ACTIVE_PODS_SUSPICIOUS_AFTER=5s", "YARDMASTER_REPORT_NO_ACTIVE_PODS_ZOMBIE_AFTER=15s",
}

// blockingFinalizer is a finalizer whose controller does not exist.
const blockingFinalizer = "e2e.yardmaster.dev/hold"

// jobFixture describes a Job and its expected finding, which is empty for a healthy Job.
type jobFixture struct {
	script string
	with   func(*batchv1.Job)
	want   string
}

var jobFixtures = map[string]jobFixture{
	"healthy":                {"true", nil, ""},
	"image-not-found":        {"true", setMissingImage, "Zombie NoReadyPods"},
	"unschedulable":          {"true", setUnmatchedNodeSelector, "Zombie NoReadyPods"},
	"crash-loop":             {"exit 1", setRestartOnFailure, "Zombie NoReadyPods"},
	"suspended":              {"true", setSuspended, "Zombie SuspendedTooLong"},
	"stuck-terminating":      {"true", addBlockingFinalizer, "Zombie StuckTerminating"},
	"deadline-exceeded":      {"sleep 3600", setShortDeadline, "Suspicious DeadlineExceeded"},
	"backoff-limit-exceeded": {"exit 3", nil, "Suspicious BackoffLimitExceeded"},
	"hanging":                {"sleep 3600", nil, "Suspicious RunningTooLong"},
	"no-pods":                {"true", removeSecurityContext, "Zombie NoActivePods"},
}

func mainContainer(job *batchv1.Job) *corev1.Container { return &job.Spec.Template.Spec.Containers[0] }

func setMissingImage(job *batchv1.Job) { mainContainer(job).Image = "registry.invalid/none:1" }
func setUnmatchedNodeSelector(job *batchv1.Job) {
	job.Spec.Template.Spec.NodeSelector = map[string]string{"e2e.yardmaster.dev/none": "such"}
}

func setRestartOnFailure(job *batchv1.Job) {
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	job.Spec.BackoffLimit = new(int32(1000))
}
func setSuspended(job *batchv1.Job)         { job.Spec.Suspend = new(true) }
func addBlockingFinalizer(job *batchv1.Job) { job.Finalizers = []string{blockingFinalizer} }
func setShortDeadline(job *batchv1.Job)     { job.Spec.ActiveDeadlineSeconds = new(int64(1)) }

// removeSecurityContext makes Pod Security reject the Pods, so that the Job never has one.
func removeSecurityContext(job *batchv1.Job) { mainContainer(job).SecurityContext = nil }

// jobFixturesOnce creates the Jobs once for all tests.
var jobFixturesOnce sync.Once

func createJobFixtures(t *testing.T) {
	t.Helper()
	jobFixturesOnce.Do(func() {
		for name, s := range jobFixtures {
			job := newFixtureJob(name, s)
			requireNoError(t, cluster.Create(t.Context(), job))
			if len(job.Finalizers) > 0 {
				requireNoError(t, cluster.Delete(t.Context(), job, client.PropagationPolicy(metav1.DeletePropagationBackground)))
			}
		}
	})
}

func newFixtureJob(name string, s jobFixture) *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: reportedNamespace}}
	job.Spec.BackoffLimit = new(int32(0))
	job.Spec.Template.Spec = corev1.PodSpec{
		RestartPolicy:                 corev1.RestartPolicyNever,
		TerminationGracePeriodSeconds: new(int64(1)),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(65532)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name: "main", Image: busyboxImage, Command: []string{"sh", "-c", s.script}, SecurityContext: restrictedSecurityContext(),
		}},
	}
	if s.with != nil {
		s.with(job)
	}
	return job
}

// wantedFindings returns the expected findings, by Job.
func wantedFindings() map[string]string {
	want := map[string]string{}
	for name, s := range jobFixtures {
		if s.want != "" {
			want[name] = s.want
		}
	}
	return want
}

// findingsByJob returns the findings of a report, by Job.
func findingsByJob(report *v1alpha1.JobReport) map[string]string {
	got := map[string]string{}
	for i := range report.Status.Findings {
		f := &report.Status.Findings[i]
		got[f.Name] = string(f.Category) + " " + f.Reason
	}
	return got
}

func testOperatorReportsStaleJobs(t *testing.T) {
	createJobFixtures(t)
	t.Cleanup(removeBlockingFinalizer(t))
	before := readJobSpecs(t)
	report := &v1alpha1.JobReport{}
	diff := ""
	defer func() {
		if diff != "" {
			t.Logf("findings (-want +got):\n%s", diff)
		}
	}()
	eventually(t, "the report to list all stale Jobs and no others", func() bool {
		err := cluster.Get(t.Context(), client.ObjectKey{Namespace: reportedNamespace, Name: v1alpha1.JobReportName}, report)
		diff = cmp.Diff(wantedFindings(), findingsByJob(report))
		return err == nil && diff == ""
	})
	if total := report.Status.Summary.Total; int(total) != len(jobFixtures) {
		t.Errorf("the summary counts %d Jobs, want %d", total, len(jobFixtures))
	}
	if diff := cmp.Diff(before, readJobSpecs(t)); diff != "" {
		t.Errorf("Jobs have changed (-before +after):\n%s", diff)
	}
}

// readJobSpecs returns the specs of the Jobs, by name.
func readJobSpecs(t *testing.T) map[string]batchv1.JobSpec {
	t.Helper()
	var jobs batchv1.JobList
	requireNoError(t, cluster.List(t.Context(), &jobs, client.InNamespace(reportedNamespace)))
	all := map[string]batchv1.JobSpec{}
	for i := range jobs.Items {
		all[jobs.Items[i].Name] = jobs.Items[i].Spec
	}
	return all
}

// removeBlockingFinalizer returns a function that removes the finalizer, because no controller does.
func removeBlockingFinalizer(t *testing.T) func() {
	return func() {
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "stuck-terminating", Namespace: reportedNamespace}}
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
		if err := client.IgnoreNotFound(cluster.Patch(context.Background(), job, patch)); err != nil {
			t.Error(err)
		}
	}
}

func testPluginReportsStaleJobs(t *testing.T) {
	createJobFixtures(t)
	args := []string{"report", "-n", reportedNamespace, "-o", "json", "--kubeconfig", newJobListerKubeconfig(t)}
	for _, setting := range shortThresholds[1:] {
		args = append(args, pluginFlagFor(setting))
	}
	want := wantedFindings()
	delete(want, "stuck-terminating") // another test may have released it
	diff := ""
	defer func() {
		if diff != "" {
			t.Logf("findings (-want +got):\n%s", diff)
		}
	}()
	eventually(t, "the plugin to list all stale Jobs and no others", func() bool {
		report, code := pluginReport(t, args)
		got := findingsByJob(report)
		delete(got, "stuck-terminating")
		diff = cmp.Diff(want, got)
		return diff == "" && code == 1
	})
}

// pluginFlagFor returns the plugin's flag for an environment variable of the operator.
func pluginFlagFor(setting string) string {
	name, value, _ := strings.Cut(strings.TrimPrefix(setting, "YARDMASTER_REPORT_"), "=")
	return "--" + strings.ToLower(strings.ReplaceAll(name, "_", "-")) + "=" + value
}

func pluginReport(t *testing.T, args []string) (report *v1alpha1.JobReport, code int) {
	t.Helper()
	out, code := runPluginBinary(t, args...)
	report = &v1alpha1.JobReport{}
	if err := json.Unmarshal([]byte(out), report); err != nil {
		t.Fatalf("%v: exit code %d, %s", err, code, out)
	}
	return report, code
}

// newJobListerKubeconfig returns the path of a kubeconfig whose user is allowed only to list the namespace's Jobs.
func newJobListerKubeconfig(t *testing.T) (path string) {
	t.Helper()
	name := metav1.ObjectMeta{Name: "e2e-lister", Namespace: reportedNamespace}
	role := &rbacv1.Role{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: []string{"list"}}}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: name,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name.Name},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: name.Name, Namespace: reportedNamespace}},
	}
	for _, object := range []client.Object{role, binding} {
		requireNoError(t, cluster.Create(t.Context(), object))
	}
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["e2e"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData, CertificateAuthority: config.CAFile}
	kubeconfig.AuthInfos["lister"] = &clientcmdapi.AuthInfo{Token: serviceAccountToken(t, reportedNamespace, name.Name)}
	kubeconfig.Contexts["e2e"] = &clientcmdapi.Context{Cluster: "e2e", AuthInfo: "lister"}
	kubeconfig.CurrentContext = "e2e"
	path = filepath.Join(t.TempDir(), "kubeconfig")
	requireNoError(t, clientcmd.WriteToFile(*kubeconfig, path))
	return path
}
