package plugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/plugin/attach"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
)

type attachCommand struct {
	*environment

	raw, full bool
}

func newAttachCommand(env *environment) *cobra.Command {
	a := &attachCommand{environment: env}
	command := agenticSessionKind.newObjectCommand(env, "attach", "Talk to an interactive AgenticSession",
		"Talk to an interactive AgenticSession of session-runner. Each line is a message, and the agent's work is printed as `session logs` does. "+
			"Ctrl-C ends the display of an answer, while the agent continues. Ctrl-D leaves the session, which continues to run.\n\n"+
			"If standard input is not a terminal, all of it is one message. The exit code is then 0 if the agent finished its work, 1 if it did not, "+
			"and 2 if the answer is unknown.\n\n"+
			"The connection is a port forwarded through the API server, which requires the permissions to get and create pods/portforward.",
		a.attach)
	command.Flags().BoolVar(&a.full, "full", false, "Print whole results of tools, and the changes of files.")
	command.Flags().BoolVar(&a.raw, "raw", false, "Print the events in JSON.")
	return command
}

func (a *attachCommand) attach(ctx context.Context, cluster *clusterConnection, s *v1alpha1.AgenticSession) error {
	to, err := cluster.findInteractivePod(ctx, s)
	if err != nil {
		return err
	}
	local, stop, err := cluster.forwardPort(ctx, to)
	if err != nil {
		return fmt.Errorf("forwarding a port to Pod %s/%s: %w", to.namespace, to.podName, err)
	}
	defer stop()
	events := &render.SessionEvents{Style: a.outputStyle(), Full: a.full}
	attached := &attach.Session{
		URL: "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(int(local))) + "/messages", Name: s.Name,
		In: a.in, Out: a.out, ErrOut: a.errOut, Render: events.Lines,
	}
	if a.raw {
		attached.Render = func(line []byte) []string { return []string{string(line)} }
	}
	if !isInteractive(a.in) {
		if err := attached.SendAll(ctx); !errors.Is(err, attach.ErrFailed) {
			return err
		}
		return errUnsuccessful
	}
	return talk(ctx, attached)
}

// talk sends each line of the input. From now on, Ctrl-C ends only the display of an answer, and does not cancel the context of main: a
// later error is then no interruption.
func talk(ctx context.Context, s *attach.Session) error {
	signal.Reset(os.Interrupt)
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	s.Interrupts = interrupts
	return s.Talk(ctx)
}

// findInteractivePod returns the Pod and port on which a session's runner accepts messages.
func (c *clusterConnection) findInteractivePod(ctx context.Context, s *v1alpha1.AgenticSession) (*podPort, error) {
	name := agenticSessionKind.qualifiedName(s)
	if !s.Spec.Interactive {
		return nil, fmt.Errorf("%s is not interactive, so it accepts no messages; create one with interactive: true", name)
	}
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(s.Namespace), client.MatchingLabels{agenticsession.LabelSessionUID: string(s.UID)}); err != nil {
		return nil, err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if port := agenticsession.InteractivePort(pod); port != 0 {
			return &podPort{namespace: pod.Namespace, podName: pod.Name, port: port}, nil
		}
	}
	return nil, fmt.Errorf("%s is %s and has no Pod that accepts messages; it accepts them when it is Running", name, s.Status.Phase)
}
