#!/usr/bin/env bash
# A real Odoo 14 in a folder of its own: Debian 11's package in a chroot, on a private PostgreSQL, both on loopback.
#
#   server.sh install FOLDER     once; exit code 77: it cannot be had here, and the reason is the last line
#   server.sh start FOLDER       a fresh database and both servers; FOLDER/settings says how to reach them
#   server.sh stop FOLDER        ends what was started
#   server.sh kill-odoo FOLDER, start-odoo FOLDER, stop-database FOLDER, start-database FOLDER
#
# It needs root, because of the chroot. It ends only what it started itself, by process id.
set -euo pipefail

folder=$2
system=$folder/system
cluster=$folder/cluster

skip() {
    echo "$1" >&2
    exit 77
}

postgres_bin() {
    local initdb
    for initdb in "$(command -v initdb || true)" /usr/lib/postgresql/*/bin/initdb; do
        if [ -x "$initdb" ]; then dirname "$initdb" && return; fi
    done
    skip 'PostgreSQL is not installed'
}

# PostgreSQL does not run as root.
as_nobody() {
    setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
}

sql() {
    PGPASSWORD=$(cat "$folder/password") psql -qtAX -v ON_ERROR_STOP=1 -h 127.0.0.1 -p "$(cat "$folder/database.port")" \
        -U owner "$@"
}

free_port() {
    local port
    while true; do
        port=$((20000 + RANDOM % 10000))
        if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then echo "$port" && return; fi
    done
}

# An archive of the machine's own that has Debian 11.
archive() {
    local uri
    for uri in $(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | sort -u); do
        if curl -fsIL -m 20 -o /dev/null "${uri%/}/dists/bullseye/Release"; then echo "$uri" && return; fi
    done
    return 1
}

install() {
    if [ -e "$folder/installed" ]; then return; fi
    [ "$(id -u)" = 0 ] || skip 'it needs root'
    command -v apt-get >/dev/null || skip 'it needs a Debian or Ubuntu'
    postgres_bin >/dev/null
    if ! command -v debootstrap >/dev/null; then
        apt-get install -y -q debootstrap >&2 || skip 'debootstrap is not to be had'
    fi
    local from
    from=$(archive) || skip 'none of the package archives of this machine has Debian 11'
    umount "$system/proc" 2>/dev/null || true
    rm -rf "$system" "$cluster"
    mkdir -p "$folder"
    chmod 755 "$folder"
    debootstrap --variant=minbase bullseye "$system" "$from" >&2 || skip 'Debian 11 is not to be had'
    printf '#!/bin/sh\nexit 101\n' >"$system/usr/sbin/policy-rc.d"
    chmod 755 "$system/usr/sbin/policy-rc.d"
    cat >"$system/etc/dpkg/dpkg.cfg.d/slim" <<-'SLIM'
		path-exclude /usr/lib/python3/dist-packages/odoo/addons/*/i18n/*
		path-exclude /usr/share/doc/*
		path-exclude /usr/share/man/*
	SLIM
    chroot "$system" apt-get update -q >&2
    DEBIAN_FRONTEND=noninteractive chroot "$system" apt-get install -y -q --no-install-recommends odoo-14 >&2 ||
        skip 'the package odoo-14 is not to be had'
    make_database
    touch "$folder/installed"
}

# The database that every run begins with a copy of.
make_database() {
    mkdir -p "$cluster"
    chown 65534:65534 "$cluster"
    od -An -N16 -tx1 /dev/urandom | tr -d ' \n' >"$folder/password"
    # Its owner alone reads it, and initdb is not root.
    as_nobody "$(postgres_bin)/initdb" -D "$cluster" -U owner -A scram-sha-256 --pwfile=/dev/fd/3 --locale=C -E UTF8 \
        3<"$folder/password" >&2
    cat >>"$cluster/postgresql.conf" <<-'CONF'
		listen_addresses = '127.0.0.1'
		unix_socket_directories = ''
		fsync = off
	CONF
    start_database
    sql postgres -c "create role odoo login createdb password '$(cat "$folder/password")'"
    configure
    mount_proc
    odoo -i crm,contacts --stop-after-init >&2
    odoo shell --no-http >"$folder/user" 2>"$folder/user.log" <<-'PYTHON'
		group = lambda name: env.ref(name).id
		groups = ['base.group_user', 'sales_team.group_sale_salesman_all_leads', 'base.group_partner_manager']
		user = env['res.users'].with_context(no_reset_password=True).create({
		    'name': 'leadsync', 'login': 'leadsync', 'email': 'leadsync@example.com',
		    'groups_id': [(6, 0, [group(name) for name in groups])]})
		key = env['res.users.apikeys'].with_user(user)._generate('rpc', 'leadsync')
		env.cr.commit()
		print('uid=%s\nkey=%s' % (user.id, key))
	PYTHON
    sql postgres -c 'alter database crm rename to clean'
    stop
}

configure() {
    cat >"$system/etc/odoo/odoo.conf" <<-CONF
		[options]
		db_host = 127.0.0.1
		db_port = $(cat "$folder/database.port")
		db_user = odoo
		db_password = $(cat "$folder/password")
		db_name = crm
		http_interface = 127.0.0.1
		http_port = $(free_port | tee "$folder/odoo.port")
		longpolling_port = $(free_port)
		list_db = False
		workers = 0
		max_cron_threads = 0
		without_demo = all
		data_dir = /var/lib/odoo
	CONF
    chroot "$system" chown odoo /etc/odoo/odoo.conf
    chmod 600 "$system/etc/odoo/odoo.conf"
}

# Odoo dies after its first answer without it.
mount_proc() {
    mountpoint -q "$system/proc" || mount -t proc proc "$system/proc"
}

odoo() {
    chroot --userspec=odoo:odoo "$system" /usr/bin/odoo "$@" -c /etc/odoo/odoo.conf
}

start_database() {
    [ -e "$folder/database.port" ] && [ -e "$folder/settings" ] || free_port >"$folder/database.port"
    as_nobody "$(postgres_bin)/pg_ctl" -D "$cluster" -l "$cluster/log" -w -o "-p $(cat "$folder/database.port")" start >&2
}

stop_database() {
    if [ -e "$cluster/postmaster.pid" ]; then
        as_nobody "$(postgres_bin)/pg_ctl" -D "$cluster" -m immediate -w stop >&2 || true
    fi
}

start_odoo() {
    mount_proc
    # Not by the function: its process id would be a shell's.
    chroot --userspec=odoo:odoo "$system" /usr/bin/odoo -c /etc/odoo/odoo.conf >"$folder/odoo.log" 2>&1 &
    echo $! >"$folder/odoo.pid"
    local port tries
    port=$(cat "$folder/odoo.port")
    for tries in $(seq 300); do
        if curl -fs -m 5 -o /dev/null "http://127.0.0.1:$port/web/login"; then return; fi
        kill -0 "$(cat "$folder/odoo.pid")" || break
        sleep 0.2
    done
    echo "Odoo did not start after $tries looks:" >&2
    tail -20 "$folder/odoo.log" >&2
    exit 1
}

kill_odoo() {
    if [ -e "$folder/odoo.pid" ]; then
        kill -9 "$(cat "$folder/odoo.pid")" 2>/dev/null || true
        rm "$folder/odoo.pid"
    fi
}

start() {
    stop
    start_database
    configure
    sql postgres -c 'drop database if exists crm' -c 'create database crm template clean owner odoo'
    start_odoo
    {
        echo "url=http://127.0.0.1:$(cat "$folder/odoo.port")"
        echo 'database=crm'
        echo 'login=leadsync'
        cat "$folder/user"
    } >"$folder/settings"
}

stop() {
    kill_odoo
    stop_database
    rm -f "$folder/settings"
    if mountpoint -q "$system/proc"; then umount "$system/proc"; fi
}

case $1 in
install) install ;;
start) start ;;
stop) stop ;;
start-odoo) start_odoo ;;
kill-odoo) kill_odoo ;;
start-database) start_database ;;
stop-database) stop_database ;;
*) sed -n '2,9s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
