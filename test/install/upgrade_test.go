//go:build e2e

package install

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/yardmaster/yardmaster/test/poll"
)

// The manifests of v0.1.0 were not from a chart: see docs/helm.md.
func TestReleaseOfTheChartReplacesV010(t *testing.T) {
	createNamespaces(t, "e2e-watched", "e2e-doomed")
	run(t, "zcat test/upgrade/v0.1.0/install.yaml.gz | kubectl apply --server-side --force-conflicts --field-manager=yardmaster-install -f -")
	run(t, "kubectl -n yardmaster-system rollout status deployment/yardmaster --timeout=10m")
	poll.Until(t, "the webhook of v0.1.0", func() bool { return webhookServes(t, "e2e-watched") })
	during := startSequence(t, "e2e-watched")

	helm(t, "install yardmaster charts/yardmaster --namespace yardmaster-system --take-ownership --force-conflicts"+
		" --set 'namespaces={e2e-watched,e2e-doomed}'"+helmValues)
	wantSequence(t, "e2e-watched")
	release(t, during)
	// docs/helm.md says what to delete.
	blocks := shellBlocks(t, "docs/helm.md", "Move from make deploy or kustomize")
	for _, block := range blocks {
		if strings.HasPrefix(block, "kubectl") {
			run(t, block)
		}
	}
	if exists(t, &rbacv1.RoleBinding{}, "e2e-watched", "yardmaster") {
		t.Error("the permissions of v0.1.0 remain")
	}
	uninstall(t, "yardmaster-system")
}
