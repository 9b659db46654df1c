//go:build e2e

package install

import (
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/yardmaster/yardmaster/test/require"
)

// The README's commands run as they are written, on an empty cluster. Only docker is another program, which loads the
// image into the cluster.
func TestInstallStepsOfTheReadmeNeedNoOtherStep(t *testing.T) {
	blocks := shellBlocks(t, "README.md", "On your own cluster")
	require.Equal(t, 2, len(blocks))
	deploy := regexp.MustCompile(`(?m)^make install deploy .*$`)
	if found := deploy.FindAllString(blocks[0], -1); len(found) != 1 {
		t.Fatalf("the first block has %d commands that the second block can replace", len(found))
	}
	for _, way := range []struct{ name, commands, uninstall string }{
		{"with make", blocks[0], "make uninstall undeploy NAMESPACES=team-a"},
		{"with Helm", deploy.ReplaceAllLiteralString(blocks[0], blocks[1]), "make uninstall; helm uninstall yardmaster --namespace yardmaster-system"},
	} {
		t.Run(way.name, func(t *testing.T) {
			output := run(t, way.commands)
			require.True(t, regexp.MustCompile(`(?m)^minimal +Completed +2 `).MatchString(output), "the sequence did not complete:\n%s", output)
			wantSequence(t, "team-a")
			run(t, way.uninstall)
			run(t, "kubectl delete namespace team-a")
			run(t, "kubectl delete namespace yardmaster-system --ignore-not-found") // Helm keeps it
			wantNothingLeft(t)
		})
	}
}

// wantNothingLeft checks that an uninstallation left nothing, so that the cluster is empty again.
func wantNothingLeft(t *testing.T) {
	t.Helper()
	kinds := "crd,clusterroles,clusterrolebindings,priorityclasses,validatingwebhookconfigurations,mutatingwebhookconfigurations," +
		"validatingadmissionpolicies,validatingadmissionpolicybindings"
	require.Equal(t, "", strings.TrimSpace(run(t, "kubectl get "+kinds+" -o name | grep yardmaster || true")))
	for _, ns := range []string{"team-a", "yardmaster-system"} {
		require.True(t, !exists(t, &corev1.Namespace{}, "", ns), "the namespace %s remains", ns)
	}
}
