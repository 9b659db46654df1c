package forward

import (
	"io"
	"net"
	"testing"
)

func TestForwardedReplyArrivesAfterTheRequestIsClosed(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go answer(server)
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer front.Close()
	go func() { _ = Serve(front, server.Addr().String()) }()

	client, err := net.Dial("tcp", front.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Write([]byte("question")); err != nil {
		t.Fatal(err)
	}
	if err := client.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(client)
	if err != nil || string(got) != "answer to question" {
		t.Errorf("got %q, %v", got, err)
	}
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
