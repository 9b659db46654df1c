package main

import (
	"os/exec"
	"strings"
)

func (s *demoEnvironment) printNextSteps() {
	s.page.PrintTitle("Look around")
	s.page.PrintLine("  export KUBECONFIG=%s", s.kubeconfig)
	if _, err := exec.LookPath("kubectl"); err != nil {
		s.page.PrintLine("  alias kubectl='%s'", strings.Join(s.cluster.KubectlCommand(), " "))
	}
	s.page.PrintLine(`  kubectl -n %[1]s describe sj failing-migration
  bin/kubectl-yardmaster seq -n %[1]s watch failing-migration
  kubectl -n %[2]s describe jobreport jobs
  bin/kubectl-yardmaster report explain never-starting -n %[2]s
  bin/kubectl-yardmaster pool -n %[3]s explain orders
  bin/kubectl-yardmaster session -n %[4]s result retry
  bin/kubectl-yardmaster session -n %[4]s restart retry --watch

  bin/kubectl-yardmaster ui -A   # the same in a browser, with live logs and actions

  examples/ has the manifests; docs/ has a page for each kind. VERBOSE=1 make demo shows every detail,
  and make demo-down deletes everything.`, sequencesNamespace, staleNamespace, ordersNamespace, sessionsNamespace)
}
