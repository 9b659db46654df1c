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

// impatience sets thresholds of seconds for the operator, instead of hours and days.
var impatience = []string{
	"YARDMASTER_REPORT_INTERVAL=2s",
	"YARDMASTER_REPORT_STUCK_TERMINATING_SUSPICIOUS_AFTER=1s", "YARDMASTER_REPORT_STUCK_TERMINATING_ZOMBIE_AFTER=5s",
	"YARDMASTER_REPORT_SUSPENDED_TOO_LONG_SUSPICIOUS_AFTER=1s", "YARDMASTER_REPORT_SUSPENDED_TOO_LONG_ZOMBIE_AFTER=5s",
	"YARDMASTER_REPORT_NO_READY_PODS_SUSPICIOUS_AFTER=5s", "YARDMASTER_REPORT_NO_READY_PODS_ZOMBIE_AFTER=15s",
	"YARDMASTER_REPORT_RUNNING_TOO_LONG_SUSPICIOUS_AFTER=5s", "YARDMASTER_REPORT_RUNNING_TOO_LONG_ZOMBIE_AFTER=1h",
	"YARDMASTER_REPORT_NO_ACTIVE_PODS_SUSPICIOUS_AFTER=5s", "YARDMASTER_REPORT_NO_ACTIVE_PODS_ZOMBIE_AFTER=15s",
}

// hold is a finalizer whose controller does not exist.
const hold = "e2e.yardmaster.dev/hold"

// stale describes a Job and its expected finding, which is empty for a healthy Job.
type stale struct {
	script string
	with   func(*batchv1.Job)
	want   string
}

var yard = map[string]stale{
	"healthy":                {"true", nil, ""},
	"image-not-found":        {"true", image404, "Zombie NoReadyPods"},
	"unschedulable":          {"true", nodeless, "Zombie NoReadyPods"},
	"crash-loop":             {"exit 1", restarting, "Zombie NoReadyPods"},
	"suspended":              {"true", suspended, "Zombie SuspendedTooLong"},
	"stuck-terminating":      {"true", finalized, "Zombie StuckTerminating"},
	"deadline-exceeded":      {"sleep 3600", oneSecond, "Suspicious DeadlineExceeded"},
	"backoff-limit-exceeded": {"exit 3", nil, "Suspicious BackoffLimitExceeded"},
	"hanging":                {"sleep 3600", nil, "Suspicious RunningTooLong"},
	"no-pods":                {"true", unrestricted, "Zombie NoActivePods"},
}

func container(job *batchv1.Job) *corev1.Container { return &job.Spec.Template.Spec.Containers[0] }

func image404(job *batchv1.Job) { container(job).Image = "registry.invalid/none:1" }
func nodeless(job *batchv1.Job) {
	job.Spec.Template.Spec.NodeSelector = map[string]string{"e2e.yardmaster.dev/none": "such"}
}

func restarting(job *batchv1.Job) {
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	job.Spec.BackoffLimit = new(int32(1000))
}
func suspended(job *batchv1.Job) { job.Spec.Suspend = new(true) }
func finalized(job *batchv1.Job) { job.Finalizers = []string{hold} }
func oneSecond(job *batchv1.Job) { job.Spec.ActiveDeadlineSeconds = new(int64(1)) }

// unrestricted makes Pod Security reject the Pods, so that the Job never has one.
func unrestricted(job *batchv1.Job) { container(job).SecurityContext = nil }

// planted creates the Jobs once for all tests.
var planted sync.Once

func plant(t *testing.T) {
	t.Helper()
	planted.Do(func() {
		for name, s := range yard {
			job := staleJob(name, s)
			must(t, cluster.Create(t.Context(), job))
			if len(job.Finalizers) > 0 {
				must(t, cluster.Delete(t.Context(), job, client.PropagationPolicy(metav1.DeletePropagationBackground)))
			}
		}
	})
}

func staleJob(name string, s stale) *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: reported}}
	job.Spec.BackoffLimit = new(int32(0))
	job.Spec.Template.Spec = corev1.PodSpec{
		RestartPolicy:                 corev1.RestartPolicyNever,
		TerminationGracePeriodSeconds: new(int64(1)),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(65532)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name: "main", Image: busybox, Command: []string{"sh", "-c", s.script}, SecurityContext: restricted(),
		}},
	}
	if s.with != nil {
		s.with(job)
	}
	return job
}

// wanted returns the expected findings, by Job.
func wanted() map[string]string {
	want := map[string]string{}
	for name, s := range yard {
		if s.want != "" {
			want[name] = s.want
		}
	}
	return want
}

// found returns the findings of a report, by Job.
func found(report *v1alpha1.JobReport) map[string]string {
	got := map[string]string{}
	for i := range report.Status.Findings {
		f := &report.Status.Findings[i]
		got[f.Name] = string(f.Category) + " " + f.Reason
	}
	return got
}

func staleJobs(t *testing.T) {
	plant(t)
	t.Cleanup(letGoOfHeld(t))
	before := specs(t)
	report := &v1alpha1.JobReport{}
	diff := ""
	defer func() {
		if diff != "" {
			t.Logf("findings (-want +got):\n%s", diff)
		}
	}()
	eventually(t, "the report to list all stale Jobs and no others", func() bool {
		err := cluster.Get(t.Context(), client.ObjectKey{Namespace: reported, Name: v1alpha1.JobReportName}, report)
		diff = cmp.Diff(wanted(), found(report))
		return err == nil && diff == ""
	})
	if total := report.Status.Summary.Total; int(total) != len(yard) {
		t.Errorf("the summary counts %d Jobs, want %d", total, len(yard))
	}
	if diff := cmp.Diff(before, specs(t)); diff != "" {
		t.Errorf("Jobs have changed (-before +after):\n%s", diff)
	}
}

// specs returns the specs of the Jobs, by name.
func specs(t *testing.T) map[string]batchv1.JobSpec {
	t.Helper()
	var jobs batchv1.JobList
	must(t, cluster.List(t.Context(), &jobs, client.InNamespace(reported)))
	all := map[string]batchv1.JobSpec{}
	for i := range jobs.Items {
		all[jobs.Items[i].Name] = jobs.Items[i].Spec
	}
	return all
}

// letGoOfHeld returns a function that removes the finalizer, because no controller does.
func letGoOfHeld(t *testing.T) func() {
	return func() {
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "stuck-terminating", Namespace: reported}}
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
		if err := client.IgnoreNotFound(cluster.Patch(context.Background(), job, patch)); err != nil {
			t.Error(err)
		}
	}
}

func sameFromALaptop(t *testing.T) {
	plant(t)
	args := []string{"report", "-n", reported, "-o", "json", "--kubeconfig", lister(t)}
	for _, setting := range impatience[1:] {
		args = append(args, flagOf(setting))
	}
	want := wanted()
	delete(want, "stuck-terminating") // another test may have released it
	diff := ""
	defer func() {
		if diff != "" {
			t.Logf("findings (-want +got):\n%s", diff)
		}
	}()
	eventually(t, "the plugin to list all stale Jobs and no others", func() bool {
		report, code := pluginReport(t, args)
		got := found(report)
		delete(got, "stuck-terminating")
		diff = cmp.Diff(want, got)
		return diff == "" && code == 1
	})
}

// flagOf returns the plugin's flag for an environment variable of the operator.
func flagOf(setting string) string {
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

// lister returns the path of a kubeconfig whose user is allowed only to list the namespace's Jobs.
func lister(t *testing.T) (path string) {
	t.Helper()
	name := metav1.ObjectMeta{Name: "e2e-lister", Namespace: reported}
	role := &rbacv1.Role{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: []string{"list"}}}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: name,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name.Name},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: name.Name, Namespace: reported}},
	}
	for _, object := range []client.Object{role, binding} {
		must(t, cluster.Create(t.Context(), object))
	}
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["e2e"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData, CertificateAuthority: config.CAFile}
	kubeconfig.AuthInfos["lister"] = &clientcmdapi.AuthInfo{Token: serviceAccountToken(t, reported, name.Name)}
	kubeconfig.Contexts["e2e"] = &clientcmdapi.Context{Cluster: "e2e", AuthInfo: "lister"}
	kubeconfig.CurrentContext = "e2e"
	path = filepath.Join(t.TempDir(), "kubeconfig")
	must(t, clientcmd.WriteToFile(*kubeconfig, path))
	return path
}
