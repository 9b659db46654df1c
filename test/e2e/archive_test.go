//go:build e2e

package e2e

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// createLogArchive creates a claim, and a ServiceAccount that may read logs, both with this name.
func createLogArchive(t *testing.T, name string) {
	t.Helper()
	metadata := metav1.ObjectMeta{Name: name, Namespace: watchedNamespace}
	require.NoError(t, cluster.Create(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metadata, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}))
	require.NoError(t, cluster.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metadata}))
	grantRole(t, watchedNamespace, name,
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/log"}, Verbs: []string{"get"}})
}

func testArchivedLogs(t *testing.T) {
	const archive = "log-archive"
	createLogArchive(t, archive)
	retry := testbuilder.WithStepOptions(func(o *v1alpha1.StepOptions) {
		o.Retry = &v1alpha1.StepRetry{Retry: v1alpha1.Retry{Limit: new(int32(1)), Backoff: &v1alpha1.Duration{Duration: metav1.Duration{Duration: time.Second}}}}
	})
	sj := testbuilder.SequentialJob("archived", "").TTLAfterFinished(0).
		Step("build", shellScript(`echo "building for $HOSTNAME"; [ -e /etc/passwd.d ]`), retry).
		Step("test", shellScript("echo never")).
		Finally("report", shellScript("echo reported")).
		Obj()
	sj.Spec.Archive = &v1alpha1.SequenceArchive{ServiceAccountName: archive, Archive: v1alpha1.Archive{ClaimRef: &v1alpha1.LocalReference{Name: archive}}}
	s := createSequence(t, sj)
	location := watchedNamespace + "/" + s.sj.Name + "/" + string(s.sj.UID) + "/run-1"
	waitUntilDeleted(t, s.sj)

	reader := testbuilder.SequentialJob("reader", "").Step("read", testbuilder.RecordOutput(), shellScript(
		"cd /logs/"+location+"; find . -type f | sort | sed 's#/archived-[^/]*/#/POD/#'; cat build/attempt-1/*/build.log build/attempt-2/*/build.log report/attempt-1/*/report.log summary.json"),
		shellOutput()).Obj()
	reader.Spec.Template = &v1alpha1.PodTemplate{}
	reader.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "logs", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: archive},
	}}}
	read := createSequence(t, reader)
	read.waitForPhase(v1alpha1.PhaseCompleted)
	output := read.stepStatus("read").Output
	for _, want := range []string{
		"./build/attempt-1/POD/build.log\n./build/attempt-2/POD/build.log\n./report/attempt-1/POD/report.log\n./summary.json\n",
		"building for archived-", "reported\n", `"problems": []`,
	} {
		require.Contains(t, output, want)
	}
	if count := strings.Count(output, "building for archived-"); count != 2 {
		t.Errorf("%d logs of the attempts:\n%s", count, output)
	}
}

// shellOutput mounts the archive and makes what the script prints the output of the step.
func shellOutput() testbuilder.StepOption {
	return testbuilder.ChangeContainer(func(c *corev1.Container) {
		c.Command[2] = "exec > /dev/termination-log; " + c.Command[2]
		c.VolumeMounts = []corev1.VolumeMount{{Name: "logs", MountPath: "/logs", ReadOnly: true}}
	})
}
