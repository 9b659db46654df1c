// Command attacker attacks the operator from a Pod.
//
//	attacker serve                        serves all hostile brokers and sources, each at its port
//	attacker work                         is a worker whose admin API is hostile
//	attacker attack PREFIX SECONDS HOST…  attacks ports of the operator in all ways whose titles have the prefix at the same
//	                                      time, and prints its replies
//
// The others print the titles of the attacks that take place. attack fails if the operator accepted a forged review or showed metrics.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/yardmaster/yardmaster/test/hostile"
)

// workerPort is the port of a worker's admin API.
const workerPort = 8081

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "attacker:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "serve":
		for title, attack := range hostile.All() {
			go func() {
				fmt.Println(serve(hostile.Port(title), func(conn net.Conn) {
					report(title)
					attack(conn)
				}))
			}()
		}
		select {}
	case len(args) == 1 && args[0] == "work":
		return serve(workerPort, hostile.AnyWorker(report))
	case len(args) >= 4 && args[0] == "attack":
		seconds, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		return attackAll(args[1], time.Duration(seconds)*time.Second, args[3:])
	}
	return errors.New("see the comment of the program")
}

// report prints the title of an attack, by which the test knows that it took place.
func report(title string) { fmt.Println(title) }

func serve(port int, attack hostile.Attack) error {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", ":"+strconv.Itoa(port))
	if err != nil {
		return err
	}
	hostile.Serve(listener, attack)
	return nil
}

func attackAll(prefix string, duration time.Duration, hosts []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), duration)
	defer cancel()
	var attacks errgroup.Group
	started := 0
	for title, peer := range hostile.Peers() {
		if !strings.HasPrefix(title, prefix) {
			continue
		}
		for _, host := range hosts {
			started++
			attacks.Go(func() error {
				replies := peer.Attack(ctx, host)
				fmt.Println(title, host, replies)
				if accepted := replies.Statuses[http.StatusOK]; accepted > 0 && !strings.HasPrefix(title, "health:") {
					return fmt.Errorf("%s: %s accepted %d requests", title, host, accepted)
				}
				return nil
			})
		}
	}
	if err := attacks.Wait(); err != nil || started > 0 {
		return err
	}
	return fmt.Errorf("no attack has the prefix %q", prefix)
}
