package main

import (
	"context"
	"os/exec"
	"strings"
)

// showKubectl shows what a user sees of the examples.
func (d *demo) showKubectl(ctx context.Context) {
	d.kubectl(ctx, "-n", namespace, "get", "sj", "-o", "wide")
	d.kubectl(ctx, "-n", namespace, "events", "--for", "sequentialjob/failing-migration")
}

func (d *demo) showNext() {
	d.screen.Say("  export KUBECONFIG=%s", d.kubeconfig)
	if _, err := exec.LookPath("kubectl"); err != nil {
		d.screen.Say("  alias kubectl='%s'", strings.Join(d.cluster.Kubectl(), " "))
	}
	d.screen.Say(`  kubectl -n %[1]s describe sj failing-migration
  kubectl -n %[1]s get jobs,pods,pvc -l yardmaster.dev/sequentialjob=etl-pipeline
  kubectl -n %[1]s logs -l yardmaster.dev/sequentialjob=etl-pipeline --prefix
  kubectl explain sequentialjob.spec.containers.step
  kubectl -n %[2]s logs deployment/yardmaster

  examples/               the manifests that were applied: change one and apply it again
  docs/sequentialjob.md   what a SequentialJob can do
  make demo               the same again, from a fresh namespace
  make demo-down          remove the cluster`, namespace, operatorNamespace)
}
