package ui

import (
	"io"
	"net"
	"net/http"
	"regexp"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/portforward"
	clientportforward "k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

var podForwardPath = regexp.MustCompile(`^/api/v1/namespaces/[^/]+/pods/[^/]+/portforward$`)

// serveForward forwards each port of a Pod to forwardTarget, as the API server and a kubelet do.
func (p *apiServerProxy) serveForward(w http.ResponseWriter, r *http.Request) {
	upgrader := websocket.Upgrader{Subprotocols: []string{portforward.WebsocketsSPDYTunnelingPortForwardV1}}
	socket, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // the upgrader has answered
	}
	connection, err := spdy.NewServerConnection(clientportforward.NewTunnelingConnection("server", socket), func(stream httpstream.Stream, _ <-chan struct{}) error {
		if stream.Headers().Get(corev1.StreamType) == corev1.StreamTypeData {
			go p.forward(stream)
		}
		return nil
	})
	if err != nil {
		socket.Close()
		return
	}
	<-connection.CloseChan()
}

func (p *apiServerProxy) forward(stream httpstream.Stream) {
	defer stream.Close()
	target, err := net.Dial("tcp", p.forwardTarget)
	if err != nil {
		return
	}
	defer target.Close()
	go func() {
		_, _ = io.Copy(target, stream)
		target.Close()
	}()
	_, _ = io.Copy(stream, target)
}
