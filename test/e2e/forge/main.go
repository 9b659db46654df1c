// Command forge runs the git server with its stub of a forge, and the scripted model server, in a Pod of the tests. Their
// addresses and what they received are at port 8080.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/yardmaster/yardmaster/test/gitserver"
	"github.com/yardmaster/yardmaster/test/modelserver"
)

// info is what a test needs to use the servers.
type info struct{ CloneURL, Host, CA, ModelURL string }

func main() {
	ctx, address := context.Background(), os.Getenv("POD_IP")
	server, err := gitserver.NewOn(ctx, address, os.TempDir(), "x-access-token", os.Getenv("FORGE_PASSWORD"))
	check(err)
	certificate, err := os.ReadFile(server.CAFile)
	check(err)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(address, "0"))
	check(err)
	var turns []modelserver.Turn
	if script := os.Getenv("MODEL_SCRIPT"); script != "" {
		check(json.Unmarshal([]byte(script), &turns))
	}
	model := modelserver.NewOn(listener, os.Getenv("MODEL_KEY"), turns...)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /info", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(info{CloneURL: server.CloneURL(), Host: server.Host, CA: string(certificate), ModelURL: model.URL})
	})
	// The session's branch is an argument of git, not of a shell.
	mux.HandleFunc("GET /commits", func(w http.ResponseWriter, r *http.Request) {
		out, err := server.Git(r.Context(), "log", "-p", "--all", "--format=%s (%D)")
		if err != nil {
			http.Error(w, out, http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, out)
	})
	control := &http.Server{Addr: ":8080", Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	check(control.ListenAndServe())
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
