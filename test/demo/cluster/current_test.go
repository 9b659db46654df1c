package cluster

import (
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/test/require"
)

func TestImagesAreLoadedByTheToolOfTheContextsCluster(t *testing.T) {
	for contextName, want := range map[string]string{
		"localcluster":   "localcluster:",
		"kind-demo":      "kind: kind load docker-image a:1 --name demo",
		"k3d-demo":       "k3d: k3d image import a:1 --cluster demo",
		"minikube":       "minikube: minikube image load a:1",
		"docker-desktop": "docker-desktop:",
		"prod":           "none",
		"kindergarten":   "none",
		"":               "none",
	} {
		got := "none"
		if loader, found := loaderOf(contextName); found {
			got = loader.name + ":"
			if loader.program != "" {
				got += " " + loader.program + " " + strings.Join(loader.load("a:1"), " ")
			}
		}
		require.True(t, got == want, "context %q: %s, want %s", contextName, got, want)
	}
}

func TestAnUnknownTypeOfClusterIsRefusedWithTheKnownOnes(t *testing.T) {
	_, err := New("eks")
	require.ErrorContains(t, err, `invalid CLUSTER "eks": must be localcluster`)
}
