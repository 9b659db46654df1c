package main

import (
	"context"
	"os/exec"
	"strings"
)

// showKubectlOutput prints what kubectl shows about the examples.
func (a *sequenceScenario) showKubectlOutput(ctx context.Context) {
	a.runKubectl(ctx, "-n", sequencesNamespace, "get", "sj", "-o", "wide")
	a.runKubectl(ctx, "-n", sequencesNamespace, "events", "--for", "sequentialjob/failing-migration")
}

func (s *demoEnvironment) printNextSteps() {
	s.screen.PrintLine("  export KUBECONFIG=%s", s.kubeconfig)
	if _, err := exec.LookPath("kubectl"); err != nil {
		s.screen.PrintLine("  alias kubectl='%s'", strings.Join(s.cluster.KubectlCommand(), " "))
	}
	s.screen.PrintLine(`  kubectl -n %[1]s describe sj failing-migration
  kubectl -n %[1]s get jobs,pods,pvc -l yardmaster.dev/sequentialjob=etl-pipeline
  kubectl -n %[1]s logs -l yardmaster.dev/sequentialjob=etl-pipeline --prefix
  kubectl explain sequentialjob.spec.containers.step
  kubectl -n %[2]s patch job suspended -p '{"spec":{"suspend":false}}'   # its finding disappears
  kubectl -n %[2]s get jobreports -w
  kubectl -n %[4]s describe workerpool orders
  bin/kubectl-yardmaster pool -n %[4]s explain orders
  bin/kubectl-yardmaster session -n %[5]s result retry
  bin/kubectl-yardmaster session -n %[5]s restart retry --watch
  kubectl -n %[3]s logs deployment/yardmaster
  bin/kubectl-yardmaster seq -n %[1]s watch failing-migration
  bin/kubectl-yardmaster report -A

  examples/               the manifests that were applied: change one and apply it again
  docs/sequentialjob.md   what a SequentialJob can do
  docs/jobreport.md       how a JobReport classifies Jobs
  docs/queue.md           queues; docs/workerpool.md: workers
  docs/agenticsession.md  agent sessions; docs/runner.md: how to write a runner
  make demo               run the demo again, in new namespaces
  make demo-down          delete the cluster`, sequencesNamespace, staleNamespace, operatorNamespace, ordersNamespace, sessionsNamespace)
}
