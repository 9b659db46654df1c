// Command kubernetes contains every Kubernetes program that a local cluster runs:
// linking them into one binary takes a fifth of the disk and of the time that linking
// each alone would.
package main

import (
	"context"
	"fmt"
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register" // kubelet and kube-proxy offer the JSON log format
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	kubeproxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	"github.com/yardmaster/yardmaster/localcluster/modules/kubernetes/controlplane"
)

var programs = map[string]func() int{
	"control-plane": controlplane.Main,
	"kubelet":       func() int { return cli.Run(kubelet.NewKubeletCommand(context.Background())) },
	"kube-proxy":    func() int { return cli.Run(kubeproxy.NewProxyCommand()) },
	"kubectl":       runKubectl,
}

func main() {
	if len(os.Args) < 2 || programs[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: kubernetes control-plane|kubelet|kube-proxy|kubectl ARGS")
		os.Exit(2)
	}
	program := programs[os.Args[1]]
	os.Args = os.Args[1:] // each program reads its own name and arguments from here
	os.Exit(program())
}

// runKubectl prints errors the way kubectl does, and exits with its codes.
func runKubectl() int {
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
	return 0
}
