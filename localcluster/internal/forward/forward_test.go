package forward

import (
	"io"
	"net"
	"testing"

	"github.com/yardmaster/yardmaster/localcluster/internal/require"
)

func TestForwardedReplyArrivesAfterTheRequestIsClosed(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer server.Close()
	go answer(server)
	front, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer front.Close()
	go func() { _ = Serve(front, server.Addr().String()) }()

	client, err := net.Dial("tcp", front.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	if _, err := client.Write([]byte("question")); err != nil {
		t.Fatal(err)
	}
	require.NoError(t, client.(*net.TCPConn).CloseWrite())
	got, err := io.ReadAll(client)
	require.True(t, err == nil && string(got) == "answer to question", "got %q, %v", got, err)
}

// answer reads a whole question before it answers.
func answer(server net.Listener) {
	connection, err := server.Accept()
	if err != nil {
		return
	}
	defer connection.Close()
	question, _ := io.ReadAll(connection) // what is missing of it shows in the answer
	_, _ = connection.Write(append([]byte("answer to "), question...))
}
