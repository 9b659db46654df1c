package worker

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/yardmaster/yardmaster/internal/pod/adminauth"
	"github.com/yardmaster/yardmaster/internal/pod/listener"
)

const maxAdminKeyFileBytes = 1 << 14

// requireToken responds with 403 to requests that are not from the operator.
func (w *Worker) requireToken(action string, handle func(http.ResponseWriter)) http.HandlerFunc {
	return func(response http.ResponseWriter, request *http.Request) {
		if err := w.authorize(request, action); err != nil {
			w.log.Debug("Refused a request to the admin API", "path", request.URL.Path, "client", request.RemoteAddr, "reason", err)
			http.Error(response, err.Error(), http.StatusForbidden)
			return
		}
		listener.Prove(request.Context())
		handle(response)
	}
}

// authorize returns an error unless the request has a token of the operator. Without a key of an operator, it returns an error unless the
// request is from this host, whose processes could also send a signal.
func (w *Worker) authorize(request *http.Request, action string) error {
	if w.options.AdminKeyFile == "" {
		host, _, err := net.SplitHostPort(request.RemoteAddr)
		if err == nil && net.ParseIP(host).IsLoopback() {
			return nil
		}
		return errors.New("this worker has no key of an operator, so it accepts this request from its own host only")
	}
	keys, err := readBounded(w.options.AdminKeyFile, maxAdminKeyFileBytes)
	if errors.Is(err, fs.ErrNotExist) {
		// The operator has no key, or was downgraded to a version without keys. Users who can remove the file may write in the namespace,
		// and so may stop the worker anyway.
		return nil
	}
	if err != nil {
		w.log.Warn("Failed to read the public key of the operator; requests to drain are refused", "error", err)
		return errors.New("this worker cannot read the public key of the operator")
	}
	token, found := strings.CutPrefix(request.Header.Get("Authorization"), "Bearer ")
	if !found {
		return errors.New("this request needs a token of the operator")
	}
	want := adminauth.Request{Worker: w.options.Namespace + "/" + w.options.Pod, Action: action}
	return adminauth.Verify(token, adminauth.ParsePublicKeys(keys), want, time.Now())
}

// readBounded reads a file. authorize calls it for each token, so that a new key applies without a restart.
func readBounded(path string, limit int64) (content []byte, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	content, err = io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(content)) > limit {
		err = fmt.Errorf("%s is longer than %d bytes", path, limit)
	}
	return content, err
}

// requirePreStopSecret hides the preStop hook from clients that do not know its secret.
func (w *Worker) requirePreStopSecret(handle http.HandlerFunc) http.HandlerFunc {
	secret := []byte(w.options.PreStopSecret)
	return func(response http.ResponseWriter, request *http.Request) {
		given := []byte(request.Header.Get(adminauth.PreStopHeader))
		if len(secret) > 0 && subtle.ConstantTimeCompare(given, secret) != 1 {
			http.NotFound(response, request)
			return
		}
		listener.Prove(request.Context())
		handle(response, request)
	}
}
