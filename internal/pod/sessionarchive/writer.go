package sessionarchive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"time"

	"github.com/yardmaster/yardmaster/internal/pod/sessionsocket"
)

const (
	// socketName is the socket in the directory that both containers mount.
	socketName = "archive.sock"
	greeting   = "\n"
	// writeTimeout bounds a write. An archive that does not read must not stop the agent.
	writeTimeout   = 10 * time.Second
	maxAnswerBytes = 16 << 10
)

// Stored is the location of a transcript, or the reason why it is not stored.
type Stored struct {
	Location  string `json:"location,omitempty"`
	Truncated bool   `json:"truncated,omitempty"`
	Error     string `json:"error,omitempty"`
	// Files are the locations of complete files, by name.
	Files map[string]string `json:"files,omitempty"`
}

// filePart is a line with a part of a file. An archive that does not know files keeps the lines in the transcript.
type filePart struct {
	File string `json:"file"`
	Data []byte `json:"data,omitempty"`
	// End is true in the last part.
	End bool `json:"end,omitempty"`
}

const (
	// filePrefix begins the lines of files. Events begin with another field.
	filePrefix = `{"file":`
	// maxPartBytes leaves room for base64 in a line.
	maxPartBytes = 512 << 10
)

// Writer sends a transcript to the container that archives it. It is for one goroutine at a time.
type Writer struct {
	connection net.Conn
	// err is the first error. After it, nothing is sent.
	err error
}

// Open connects to the container, which accepts only one connection, so no process that the agent starts later can write.
func Open(ctx context.Context, directory string) (*Writer, error) {
	connection, err := sessionsocket.Dial(ctx, filepath.Join(directory, socketName))
	if err != nil {
		return nil, err
	}
	// The container greets the connection that it accepts. After a restart of the runner, an agent may have taken it.
	_ = connection.SetReadDeadline(time.Now().Add(writeTimeout))
	if _, err := io.ReadFull(connection, make([]byte, len(greeting))); err != nil {
		return nil, errors.Join(fmt.Errorf("the archive did not accept the connection: %w", err), connection.Close())
	}
	return &Writer{connection: connection}, connection.SetReadDeadline(time.Time{})
}

// Write implements io.Writer. After an error it discards its input: a failed archive must not fail the session.
func (w *Writer) Write(p []byte) (int, error) {
	if w.err == nil {
		_ = w.connection.SetWriteDeadline(time.Now().Add(writeTimeout))
		_, w.err = w.connection.Write(p)
	}
	return len(p), nil
}

// WriteFile sends a file, which is stored beside the transcript. It returns an error if the archive does not receive all of the file.
func (w *Writer) WriteFile(name string, from io.Reader) error {
	buffer := make([]byte, maxPartBytes)
	for {
		n, err := io.ReadFull(from, buffer)
		isEnd := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !isEnd {
			return err
		}
		line, err := json.Marshal(filePart{File: name, Data: buffer[:n], End: isEnd})
		if err != nil {
			return err
		}
		_, _ = w.Write(append(line, '\n'))
		if isEnd || w.err != nil {
			return w.err
		}
	}
}

// Close ends the transcript and waits until it is stored. If ctx ends first, the container continues.
func (w *Writer) Close(ctx context.Context) Stored {
	defer w.connection.Close()
	stored, err := w.finish(ctx)
	if err != nil {
		stored.Error = err.Error()
	}
	return stored
}

func (w *Writer) finish(ctx context.Context) (Stored, error) {
	if w.err != nil {
		return Stored{}, fmt.Errorf("sending the transcript: %w", w.err)
	}
	half, ok := w.connection.(interface{ CloseWrite() error })
	if !ok {
		return Stored{}, errors.New("the connection cannot be closed in one direction")
	}
	if err := half.CloseWrite(); err != nil {
		return Stored{}, fmt.Errorf("sending the transcript: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = w.connection.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	stored := Stored{}
	if err := json.NewDecoder(io.LimitReader(w.connection, maxAnswerBytes)).Decode(&stored); err != nil {
		if ctx.Err() != nil {
			err = errors.New("the archive did not answer in time, and may still store it")
		}
		return stored, fmt.Errorf("storing the transcript: %w", err)
	}
	return stored, nil
}
