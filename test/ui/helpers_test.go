package ui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/test/require"
)

func contains(text, part string) bool { return strings.Contains(text, part) }

// setOffline disconnects the browser, or connects it again.
func (b *browser) setOffline(offline bool) {
	b.t.Helper()
	b.run("changing the network", command(network.EmulateNetworkConditionsByRule, network.EmulateNetworkConditionsByRuleParams{
		MatchedNetworkConditions: []*network.Conditions{{Offline: offline, DownloadThroughput: -1, UploadThroughput: -1}},
	}))
}

// setHidden simulates that the tab is in the background, or in front again.
func (b *browser) setHidden(hidden bool) {
	b.t.Helper()
	evaluate[bool](b, fmt.Sprintf("Object.defineProperty(document, 'hidden', {value: %t, configurable: true}); document.dispatchEvent(new Event('visibilitychange'))", hidden))
}

// grant allows a user to do something with a kind in a namespace.
func grant(t *testing.T, ns, user, resource string, verbs ...string) {
	t.Helper()
	for _, object := range []client.Object{
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "ui", Namespace: ns}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"yardmaster.dev"}, Resources: []string{resource}, Verbs: verbs}}},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "ui", Namespace: ns}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "ui"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		},
	} {
		require.NoError(t, cluster.Create(t.Context(), object))
	}
}

// staleJob returns a Job for failStaleJob.
func staleJob(ns, name string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns},
		Spec: batchv1.JobSpec{
			Suspend:  new(true), // the Job controller creates no Pod before the status is set
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "train", Image: "registry.example/train:1"}}}},
		},
	}
}

// failStaleJob makes the Job one that failed a month ago.
func failStaleJob(job *batchv1.Job) {
	begin, end := ago(31*24*time.Hour), ago(30*24*time.Hour)
	job.Status.StartTime, job.Status.Failed = begin, 1
	for _, kind := range []batchv1.JobConditionType{batchv1.JobFailureTarget, batchv1.JobFailed} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonBackoffLimitExceeded, Message: "Job has reached the specified backoff limit", LastTransitionTime: *end, LastProbeTime: *end})
	}
}

// press presses keys.
func (b *browser) press(keys string) {
	b.t.Helper()
	b.run("pressing "+keys, chromedp.KeyEvent(keys))
}
