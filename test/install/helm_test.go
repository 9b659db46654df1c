//go:build e2e

package install

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
	"github.com/yardmaster/yardmaster/test/testenv"
)

const helmValues = " --set image.repository=registry.example/yardmaster,image.tag=v1"

// The steps depend on each other, as those of a user do. In each of them, a sequence runs during what Helm does, and is
// not interrupted.
func TestReleaseOfTheChartWithARunningOperator(t *testing.T) {
	createNamespaces(t, "platform", "team-x", "team-y", "team-z")

	helm(t, "install yardmaster charts/yardmaster --namespace platform --set 'namespaces={team-x}'"+helmValues)
	wantWatched(t, "platform", "team-x")

	during := startSequence(t, "team-x")
	helm(t, "upgrade yardmaster charts/yardmaster --namespace platform --set 'namespaces={team-x,team-y}' --set replicas=1"+helmValues)
	wantWatched(t, "platform", "team-x", "team-y")
	release(t, during)

	during = startSequence(t, "team-y")
	helm(t, "rollback yardmaster 1 --namespace platform")
	wantWatched(t, "platform", "team-x")

	helm(t, "upgrade yardmaster charts/yardmaster --namespace platform --set 'namespaces={*}'"+helmValues)
	wantWatched(t, "platform", "team-x", "team-y", "team-z")
	release(t, during) // nobody watched its namespace for some time

	during = startSequence(t, "team-z")
	helm(t, "uninstall yardmaster --namespace platform")
	require.True(t, !exists(t, &appsv1.Deployment{}, "platform", "yardmaster"), "the Deployment remains")
	// Another namespace, and the CustomResourceDefinitions and objects of the first release.
	helm(t, "install yardmaster charts/yardmaster --namespace yardmaster-system --create-namespace --take-ownership --set 'namespaces={team-z}'"+helmValues)
	wantWatched(t, "yardmaster-system", "team-z")
	release(t, during)
	uninstall(t, "yardmaster-system")
}

// helm runs a command of Helm, and waits until the operator is ready.
func helm(t *testing.T, command string) {
	t.Helper()
	if !strings.HasPrefix(command, "uninstall") {
		command += " --wait --timeout 10m"
	}
	run(t, "helm "+command)
}

// uninstall deletes a release, what it keeps, and its namespace.
func uninstall(t *testing.T, ns string) {
	t.Helper()
	run(t, "make uninstall")
	helm(t, "uninstall yardmaster --namespace "+ns)
	run(t, "kubectl delete namespace "+ns)
	wantNothingLeft(t)
}

// wantWatched checks that sequences run in these namespaces, and that the operator has permissions in no others.
func wantWatched(t *testing.T, release string, watched ...string) {
	t.Helper()
	deployment := &appsv1.Deployment{}
	require.NoError(t, cluster.Get(t.Context(), client.ObjectKey{Namespace: release, Name: "yardmaster"}, deployment))
	require.Equal(t, image, deployment.Spec.Template.Spec.Containers[0].Image)
	everywhere := exists(t, &rbacv1.ClusterRoleBinding{}, "", "yardmaster-sequentialjob-"+release)
	for _, ns := range []string{"team-x", "team-y", "team-z"} {
		if role := exists(t, &rbacv1.Role{}, ns, "yardmaster-sequentialjob"); !everywhere && role != slices.Contains(watched, ns) {
			t.Errorf("the operator has a Role in %s: %t", ns, role)
		}
	}
	for _, ns := range watched {
		wantSequence(t, ns)
	}
}

// startSequence starts a sequence whose first step runs until it is released.
func startSequence(t *testing.T, ns string) *v1alpha1.SequentialJob {
	t.Helper()
	sj := testbuilder.SequentialJob("", "").Step("long").Step("next").Obj()
	sj.Namespace, sj.GenerateName = ns, "during-"
	sj.Spec.Containers[0].Image, sj.Spec.Containers[0].Command = "busybox:1.37", []string{"sh", "-c", "until [ -f /tmp/released ]; do sleep 0.2; done"}
	sj.Spec.Containers[1].Image, sj.Spec.Containers[1].Command = "busybox:1.37", []string{"true"}
	require.NoError(t, cluster.Create(t.Context(), sj))
	poll.Until(t, "the step of "+sj.Name+" to run", func() bool { return len(podsOf(t, sj, corev1.PodRunning)) == 1 })
	return sj
}

func release(t *testing.T, sj *v1alpha1.SequentialJob) {
	t.Helper()
	pods := podsOf(t, sj, corev1.PodRunning)
	require.True(t, len(pods) == 1 && pods[0].Status.ContainerStatuses[0].RestartCount == 0, "the running step was interrupted: %d Pods run", len(pods))
	run(t, "kubectl -n "+sj.Namespace+" exec "+pods[0].Name+" -- touch /tmp/released")
	waitUntilCompleted(t, sj)
	all := podsOf(t, sj, corev1.PodSucceeded)
	require.True(t, len(all) == 2, "the two steps had %d Pods", len(all))
}

func podsOf(t *testing.T, sj *v1alpha1.SequentialJob, phase corev1.PodPhase) []corev1.Pod {
	t.Helper()
	pods := &corev1.PodList{}
	require.NoError(t, cluster.List(t.Context(), pods, client.InNamespace(sj.Namespace), client.MatchingLabels{v1alpha1.LabelSequentialJob: sj.Name}))
	return slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return pod.Status.Phase != phase })
}

func createNamespaces(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		require.NoError(t, cluster.Create(t.Context(), ns))
		t.Cleanup(func() {
			ctx := context.WithoutCancel(t.Context())
			testenv.SaveObjectsOfFailedTest(ctx, t, cluster, name)
			if os.Getenv("KEEP") == "" {
				_ = cluster.Delete(ctx, ns)
			}
		})
	}
}
